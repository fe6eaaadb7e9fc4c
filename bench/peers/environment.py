"""The Python environment that the peers run in: made in $XPIPE_CACHE when it is not there."""
import hashlib
import os
import pathlib
import subprocess
import sys
import venv

REQUIREMENTS = pathlib.Path(__file__).resolve().parent / "requirements.txt"
# torchgpipe ships as source only and asks for a package to build with that nobody needs.
TORCHGPIPE = "torchgpipe==0.0.7"


def cache():
    if os.environ.get("XPIPE_CACHE"):
        return pathlib.Path(os.environ["XPIPE_CACHE"])
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "xpipe"


def folder():
    content = REQUIREMENTS.read_bytes() + TORCHGPIPE.encode()
    return cache() / f"peers-{hashlib.sha256(content).hexdigest()[:12]}"


def python_with_peers():
    """The interpreter of that environment."""
    root = folder()
    python = root / "bin/python"
    done = root / "complete"  # Written last: an interrupted installation is made again.
    if not done.exists():
        print(f"peers: installing PyTorch, torchvision, torchgpipe and SimPy into {root} (1.5 GB to "
              "download, 3.6 GB unpacked)", file=sys.stderr)
        venv.create(root, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--only-binary=:all:", "-r", REQUIREMENTS], check=True)
        subprocess.run([*pip, "--no-build-isolation", TORCHGPIPE], check=True)
        done.touch()
    return python
