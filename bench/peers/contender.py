"""One process of one Python contender; runs in the peers' Python, driven by rounds.py.

Answers on stdout, a line of JSON each: first {"losses": [...]} of three warm-up steps (of the rank
that has the loss), then one answer a command:
  steps N       N training steps: {"begin": s, "end": s, "steps": N} on the machine's steady clock
  seconds S     as many whole steps as begin within S seconds; the same answer
  stop          {"peak_rss_mib": ...} and the end
"""
import argparse
import json
import os
import resource
import sys
import time

WARM_UP = 3


def sequential(arguments):
    import torch
    from works import data_of, loss_of, optimizer_of, units_of
    model = torch.nn.Sequential(*units_of(arguments.work))
    optimizer = optimizer_of(model.parameters())
    inputs, labels = data_of(arguments.work)
    parts = list(zip(inputs.chunk(arguments.micro_batches), labels.chunk(arguments.micro_batches)))

    def step():
        optimizer.zero_grad()
        total = 0.0
        for part, part_labels in parts:
            loss = loss_of(model(part), part_labels) / len(parts)
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    return step


def pytorch_pipeline(arguments, schedule_name):
    """A stage of torch.distributed.pipelining in this process, the other one in its twin."""
    import torch
    from torch.distributed import init_process_group, pipelining
    from works import data_of, loss_of, optimizer_of, units_of
    init_process_group("gloo", rank=arguments.rank, world_size=2,
                       init_method="file://" + os.path.abspath(arguments.store))
    units = units_of(arguments.work)
    mine = units[: arguments.cut] if arguments.rank == 0 else units[arguments.cut:]
    module = torch.nn.Sequential(*mine)
    stage = pipelining.PipelineStage(module, arguments.rank, 2, torch.device("cpu"))
    schedule = getattr(pipelining, schedule_name)(stage, n_microbatches=arguments.micro_batches,
                                                  loss_fn=loss_of)
    optimizer = optimizer_of(module.parameters())
    inputs, labels = data_of(arguments.work)

    def step():
        optimizer.zero_grad()
        loss = None
        if arguments.rank == 0:
            schedule.step(inputs, return_outputs=False)
        else:
            losses = []
            schedule.step(target=labels, losses=losses, return_outputs=False)
            loss = sum(value.item() for value in losses) / len(losses)
        optimizer.step()
        return loss

    return step


def torchgpipe_pipeline(arguments):
    import torch
    from torchgpipe import GPipe
    from works import data_of, loss_of, optimizer_of, units_of
    units = units_of(arguments.work)
    model = GPipe(torch.nn.Sequential(*units), devices=["cpu", "cpu"], checkpoint="never",
                  balance=[arguments.cut, len(units) - arguments.cut],
                  chunks=arguments.micro_batches)
    optimizer = optimizer_of(model.parameters())
    inputs, labels = data_of(arguments.work)

    def step():
        optimizer.zero_grad()
        loss = loss_of(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def stage_alone(arguments):
    """Forward, backward and step of one stage on inputs and gradients that are ready."""
    import torch
    from works import data_of, loss_of, optimizer_of, units_of
    units = units_of(arguments.work)
    inputs, labels = data_of(arguments.work)
    count, first = arguments.micro_batches, arguments.rank == 0
    front = torch.nn.Sequential(*units[: arguments.cut])
    with torch.no_grad():
        middles = [front(part) for part in inputs.chunk(count)]
    module = front if first else torch.nn.Sequential(*units[arguments.cut:])
    optimizer = optimizer_of(module.parameters())
    parts = list(inputs.chunk(count)) if first else [m.requires_grad_() for m in middles]
    gradients = [torch.randn_like(middle) * 1e-4 for middle in middles]
    part_labels = labels.chunk(count)

    def step():
        optimizer.zero_grad()
        for i, part in enumerate(parts):
            if first:
                module(part).backward(gradients[i])
            else:
                part.grad = None
                (loss_of(module(part), part_labels[i]) / count).backward()
        optimizer.step()

    return step


MAKERS = {
    "sequential": sequential,
    "pytorch-gpipe": lambda a: pytorch_pipeline(a, "ScheduleGPipe"),
    "pytorch-1f1b": lambda a: pytorch_pipeline(a, "Schedule1F1B"),
    "torchgpipe": torchgpipe_pipeline,
    "stage-alone": stage_alone,
}


def serve(step, answer):
    for line in sys.stdin:
        command, *value = line.split()
        if command == "stop":
            answer({"peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})
            return
        begin, steps = time.monotonic(), 0
        wanted = float(value[0])
        while steps < wanted if command == "steps" else time.monotonic() - begin < wanted:
            step()
            steps += 1
        answer({"begin": begin, "end": time.monotonic(), "steps": steps})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=[*MAKERS, "write-handover"])
    parser.add_argument("--work", choices=["W1", "W2"], required=True)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--cut", type=int, default=0)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--store", help="file through which the two ranks meet")
    parser.add_argument("--handover", help="file to write")
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(document):
        print(json.dumps(document), file=answers, flush=True)

    import torch
    torch.set_num_threads(arguments.threads)
    if arguments.contender == "write-handover":
        from works import write_handover
        write_handover(arguments.work, arguments.handover)
        return
    step = MAKERS[arguments.contender](arguments)
    losses = [step() for _ in range(WARM_UP)]
    answer({"losses": [loss for loss in losses if loss is not None]})
    serve(step, answer)


if __name__ == "__main__":
    main()
