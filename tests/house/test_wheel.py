"""The wheel holds all that the checkout has, and what it installs works where nothing of the checkout is.

An editable installation finds what setuptools was not told of, so no other test would miss it.
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import ampsq

ROOT = Path(ampsq.__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETTINGS = PROJECT["tool"]["setuptools"]
DEPENDENCIES = PROJECT["project"]["dependencies"]
#: What is read to build it, beside the packages.
READ = ("pyproject.toml", "README.md", "LICENSE")
#: Folders of packages in the checkout -> their folders in the wheel, those within others first.
FOLDERS = {
    "spark/lookup/pyspark_ampsq": "pyspark_ampsq",
    "ampsq": "ampsq",
    "bench": "ampsq/bench",
    "cli": "ampsq/cli",
    "lua": "ampsq/lua",
    "spark": "ampsq/spark",
}
#: Pages for readers of the checkout.
UNPACKED = {ROOT / "lua" / "README.md"}
#: Run as a file by the interpreter that a server is started with; its imports are of a program's.
RUN_AS_FILES = {"ampsq.server.supervisor"}
#: The moment of which all files in what is built are, seconds since 1970: builds of the same files are the same bytes.
MOMENT = "1700000000"
#: Seconds within which a program of these tests ends, on a machine that is busy.
LIMIT = 240.0

IMPORT_ALL = """
import importlib, sys
for name in sys.stdin.read().split():
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.prefix), f"{name} is that of {module.__file__}"
    print(name)
"""

BUILD_SDIST = "import setuptools.build_meta as backend; backend.build_sdist('sources')"

#: What is revealed of it to who has only installed it.
TYPED = """
from ampsq import Client

with Client("redis://127.0.0.1:1") as client:
    reveal_type(client.publish("orders", {"id": 1}))
    reveal_type(client.subscribe("work").get())
    reveal_type(client.admin.queue_stats("work").depth)
"""
#: Bytes, and packages, that `pip install ampsq` brings at most.
LARGEST, MOST_PACKAGES = 18_050_000, 13

pytestmark = pytest.mark.timeout(4 * LIMIT)


def run(*words, folder, given=""):
    """Return the output of a program, which is to succeed; it knows nothing of the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AMPSQ_", "PYTHON"))}
    environment["SOURCE_DATE_EPOCH"] = MOMENT
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files():
    """Path in the wheel -> path in the checkout, of everything in the folders of packages."""
    found = {}
    for folder, there in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.is_file()
                and "__pycache__" not in path.parts
                and path not in found.values()
                and path not in UNPACKED
            ):
                found[f"{there}/{path.relative_to(ROOT / folder)}"] = path
    return found


def modules():
    """The dotted names of the modules in the wheel."""
    for name in files():
        if name.endswith(".py"):
            yield name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def built(source, folder):
    """Build a wheel of a checkout, or of an sdist. The backend is that of the extra `dev`: building asks no network."""
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", *options, "--wheel-dir", "out", source, folder=folder)
    (found,) = (folder / "out").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the checkout, in which nothing is left of builds before."""
    checkout = tmp_path_factory.mktemp("checkout")
    for path in (*files().values(), *(ROOT / name for name in READ)):
        copy = checkout / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return checkout


@pytest.fixture(scope="module")
def wheel(checkout):
    """A wheel of that copy."""
    return built(checkout, checkout)


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of programs of an environment with the wheel, and with what ampsq needs as it is here."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    python = folder / "bin" / "python"
    options = ("--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *options, wheel, folder=folder)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    needed = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    # A folder that is named here gives its packages. Its own .pth files, an editable ampsq among them, are not read.
    (packages / "needed.pth").write_text("".join(f"{path}\n" for path in needed))
    return folder / "bin"


def test_setuptools_is_told_of_each_folder_with_files():
    # Scripts are the data of one package, whatever room they are in.
    folders = {name.rpartition("/")[0].replace("/", ".") for name in files() if not name.endswith(".lua")}

    assert SETTINGS["packages"] == sorted(folders)
    assert SETTINGS["package-data"]["ampsq.lua"] == ["**/*.lua"]


def test_setuptools_knows_where_each_package_begins():
    assert SETTINGS["package-dir"] == {there.replace("/", "."): folder for folder, there in FOLDERS.items()}


@pytest.mark.slow
def test_the_wheel_holds_what_the_checkout_has_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
        assert names == files().keys()
        assert [name for name, path in files().items() if packed.read(name) != path.read_bytes()] == []


@pytest.mark.slow
def test_every_module_of_the_wheel_can_be_imported(installed):
    wanted = sorted(set(modules()) - RUN_AS_FILES)

    said = run(installed / "python", "-c", IMPORT_ALL, folder=installed, given="\n".join(wanted))

    assert said.split() == wanted
    for name in RUN_AS_FILES:
        (path,) = installed.parent.glob(f"lib/python*/site-packages/{name.replace('.', '/')}.py")
        assert py_compile.compile(str(path), doraise=True)


@pytest.mark.slow
def test_what_is_installed_runs_the_readme_s_ten_lines(installed, tmp_path):
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[0]

    said = run(installed / "python", "-c", program, folder=tmp_path)

    assert said == "{'id': 1, 'price': 12.5, 'qty': 100} 1\n"


@pytest.mark.slow
def test_what_is_installed_has_the_command(installed, tmp_path):
    assert run(installed / "ampsq", "--version", folder=tmp_path).split()[-1] == ampsq.__version__


@pytest.fixture(scope="module")
def sdist(checkout):
    """An sdist of the copy."""
    run(sys.executable, "-c", BUILD_SDIST, folder=checkout)
    (found,) = (checkout / "sources").glob("*.tar.gz")
    return found


@pytest.mark.slow
def test_the_sdist_makes_the_wheel_that_the_checkout_makes_to_the_byte(sdist, wheel, tmp_path):
    again = built(sdist, tmp_path)

    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.slow
def test_neither_the_wheel_nor_the_sdist_has_tests_or_their_data(sdist, wheel):
    with tarfile.open(sdist) as packed:
        names = packed.getnames()
    with zipfile.ZipFile(wheel) as packed:
        names += packed.namelist()

    assert [name for name in names if "tests" in Path(name).parts] == []


@pytest.mark.slow
def test_types_are_seen_by_who_has_installed_it(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TYPED)

    options = ("--strict", "--python-executable", installed / "python", "--cache-dir", tmp_path / "cache")
    done = run(sys.executable, "-m", "mypy", *options, program, folder=tmp_path)

    revealed = re.findall(r'Revealed type is "(.*)"', done)
    assert [re.sub(r"\b[a-z_.]+\.", "", each) for each in revealed] == ["Bookmark", "Message | None", "int"]


def test_the_version_is_told_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == ampsq.__version__
    assert (ROOT / "CHANGELOG.md").read_text().count("\n## Unreleased\n") == 1


def test_who_installs_it_without_extras_gets_few_and_small_packages():
    """The bytes of all that `pip install ampsq` brings, without what Python compiles of it."""
    wanted, seen = ["ampsq"], {}
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        found = distribution(name)
        seen[name] = sum(
            path.stat().st_size
            for each in found.files or ()
            if (path := Path(found.locate_file(each))).is_file() and "__pycache__" not in path.parts
        )
        # What was installed as editable may be of a requirement before.
        for text in found.requires or () if name != "ampsq" else DEPENDENCIES:
            requirement = Requirement(text)
            extras = {"hiredis", ""} if name == "redis" else {""}
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                wanted.append(re.sub(r"[-_.]+", "-", requirement.name).lower())
    seen["ampsq"] = sum(path.stat().st_size for path in files().values())

    assert sum(seen.values()) < LARGEST, seen
    assert len(seen) <= MOST_PACKAGES, sorted(seen)
