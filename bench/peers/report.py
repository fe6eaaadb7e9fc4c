"""Tables and verdicts from the rounds."""
import statistics

from rounds import of_limit, our_name, paired


def summarize(result):
    """Adds what the tables show to the raw rounds: medians of ratios within a round."""
    rounds, batches = result["rounds"], result["micro_batches"]
    rows = []
    for name in rounds[0]:
        row = {"contender": name,
               "samples_per_s": statistics.median(r[name]["samples_per_s"] for r in rounds),
               "best_samples_per_s": max(burst["samples_per_s"] for r in rounds
                                         for burst in r[name].get("bursts", [r[name]]))}
        for key, over in (("of_limit", "limit"), ("over_sequential", "sequential"),
                          ("over_two_threads", "two threads")):
            ratio = paired(rounds, name, over)
            if ratio:
                row[key], row[key + "_least"], row[key + "_most"] = ratio
        if "whole_samples_per_s" in rounds[0][name]:
            whole = paired(rounds, name, "limit", "whole_samples_per_s")
            row["whole_of_limit"] = whole[0] if whole else None
            row["prediction_share"] = statistics.median(
                r[name]["prediction_s"] / r[name]["steady_s"] for r in rounds)
            row["no_overhead_share"] = statistics.median(
                r[name].get("no_overhead_s", 0) / r[name]["steady_s"] for r in rounds)
            row["busiest_stage_share"] = statistics.median(
                max(r[name]["busy_s"]) / r[name]["steady_s"] for r in rounds)
        if "stages_s" in rounds[0][name]:
            row["stages_s"] = [statistics.median(r[name]["stages_s"][k] for r in rounds)
                               for k in (0, 1)]
        rows.append(row)
    result["table"] = rows
    result["aims"] = aims(rounds, batches)
    return result


def aims(rounds, micro_batches):
    """What the design asks for, with what was found."""
    told = []

    def add(text, found, wanted):
        if found:
            told.append({"aim": text, "found": found[0], "wanted": wanted,
                         "reached": found[0] >= wanted})

    bound = micro_batches / (micro_batches + 1)
    pipeline = our_name("xpipe")
    add("xpipe of the limit, steady", paired(rounds, pipeline, "limit"), 0.97)
    for rival in ("two threads", "PyTorch ScheduleGPipe", "PyTorch Schedule1F1B", "torchgpipe"):
        add(f"xpipe over {rival}", paired(rounds, pipeline, rival), 1.0)
    over = paired(rounds, pipeline, our_name("gpipe"))
    add("xpipe over our gpipe, of (T+1)/T", over and (over[0] * bound,), 0.95)
    for policy in ("gpipe", "1f1b"):
        of_limit = paired(rounds, our_name(policy), "limit")
        add(f"{policy} of T/(T+1) of the limit", of_limit and (of_limit[0] / bound,), 0.98)
        for rival in ("PyTorch ScheduleGPipe", "PyTorch Schedule1F1B", "torchgpipe"):
            add(f"{policy} over {rival}", paired(rounds, our_name(policy), rival), 1.0)
    for policy, rival in (("gpipe-gloo", "PyTorch ScheduleGPipe"), ("1f1b-gloo", "PyTorch Schedule1F1B"),
                          ("xpipe-gloo", "PyTorch Schedule1F1B")):
        add(f"{policy} over {rival}", paired(rounds, our_name(policy), rival), 1.0)
    return told


def print_all_settings(results):
    """What the rounds of all settings say together, where a single one's are few and scattered."""
    rounds = [(result["micro_batches"], r) for result in results for r in result["rounds"]]

    head = "| contender | over | wanted | median | rounds that reach it |\n|---|---|---|---|---|"

    def tell(name, over, wanted=1.0, scale=lambda micro_batches: 1.0):
        ratios = [of_limit(r[name]) / of_limit(r[over]) * scale(t) for t, r in rounds
                  if name in r and over in r]
        if ratios:
            reached = sum(ratio >= wanted for ratio in ratios)
            print(f"| {name} | {over} | {wanted:.2f} | {statistics.median(ratios):.3f} | "
                  f"{reached} of {len(ratios)} |")

    print(f"\n### All settings\n\n{head}")
    pipeline, apart = our_name("xpipe"), our_name("xpipe-gloo")
    tell(pipeline, "limit", 0.97)
    tell(apart, "limit", 0.97)
    for rival in ("two threads", "PyTorch ScheduleGPipe", "PyTorch Schedule1F1B", "torchgpipe"):
        tell(pipeline, rival)
    tell(apart, "PyTorch Schedule1F1B")
    for policy, rival in (("gpipe", "PyTorch ScheduleGPipe"), ("1f1b", "PyTorch Schedule1F1B")):
        tell(our_name(policy), rival)
        tell(our_name(f"{policy}-gloo"), rival)
    print(f"\nThe same, with a synchronous pipeline's T/(T+1) taken out:\n\n{head}")
    for policy in ("gpipe", "1f1b"):
        tell(our_name(policy), "limit", 0.98, lambda t: (t + 1) / t)
    tell(pipeline, our_name("gpipe"), 0.95, lambda t: t / (t + 1))


def number(row, key, form="{:.3f}"):
    return form.format(row[key]) if row.get(key) is not None else ""


def print_tables(result):
    print(f"\n### {result['work']}, T = {result['micro_batches']}, mini-batch {result['batch']}, cut "
          f"after unit {result['cut']}, {len(result['rounds'])} rounds\n")
    print("| contender | samples/s | the best | of the limit | least to most | of the limit, fill and drain "
          "included | over sequential | over two threads |\n|---|---|---|---|---|---|---|---|")
    for row in result["table"]:
        spread = (f"{row['of_limit_least']:.3f} to {row['of_limit_most']:.3f}"
                  if "of_limit" in row else "")
        print(f"| {row['contender']} | {row['samples_per_s']:.1f} | "
              f"{row['best_samples_per_s']:.1f} | {number(row, 'of_limit')} | "
              f"{spread} | {number(row, 'whole_of_limit')} | {number(row, 'over_sequential', '{:.2f}')} "
              f"| {number(row, 'over_two_threads', '{:.2f}')} |")
    print()
    for row in result["table"]:
        if "stages_s" in row:
            first, second = row["stages_s"]
            print(f"- {row['contender']}: the stages take {first:.4f} and {second:.4f} s a mini-batch")
        if row.get("prediction_share"):
            print(f"- {row['contender']}: predictions take {row['prediction_share']:.2%} of a "
                  f"mini-batch's time; the busiest stage computes {row['busiest_stage_share']:.2%}")
        if row.get("no_overhead_share"):
            print(f"- {row['contender']}: with the same tasks and nothing between them it would take "
                  f"{row['no_overhead_share']:.2%} of the time")
    for name, what in result["failed"].items():
        print(f"- {name} FAILED: {what}")
    for name, found in result["losses_differ"].items():
        print(f"- {name}: its losses {found} DIFFER from the sequential ones")
    if not result["losses_differ"]:
        print("- the first losses of all contenders are equal within 1e-5")
    load = max(result["foreign_load_cores"])
    print(f"- other processes used at most {load:.2f} cores in a round"
          + (": NOT a quiet machine" if load > 0.1 else ""))
    print("\n| aim | wanted | found | |\n|---|---|---|---|")
    for aim in result["aims"]:
        print(f"| {aim['aim']} | {aim['wanted']:.2f} | {aim['found']:.3f} | "
              f"{'reached' if aim['reached'] else 'missed'} |")
