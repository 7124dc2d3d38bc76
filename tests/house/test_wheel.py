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
import tomllib
import zipfile
from pathlib import Path

import pytest

import ampsq

ROOT = Path(ampsq.__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
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
#: Seconds within which a program of these tests ends, on a machine that is busy.
LIMIT = 240.0

IMPORT_ALL = """
import importlib, sys
for name in sys.stdin.read().split():
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.prefix), f"{name} is that of {module.__file__}"
    print(name)
"""

pytestmark = pytest.mark.timeout(4 * LIMIT)


def run(*words, folder, given=""):
    """What a program prints, which is to succeed; it knows nothing of the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AMPSQ_", "PYTHON"))}
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel that is built of a copy, in which nothing is left of builds before."""
    checkout = tmp_path_factory.mktemp("checkout")
    for path in (*files().values(), *(ROOT / name for name in READ)):
        copy = checkout / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    # The backend is that of the extra `dev`: building asks no network.
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", *options, "--wheel-dir", "out", checkout, folder=checkout)
    (found,) = (checkout / "out").glob("*.whl")
    return found


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


def test_the_wheel_holds_what_the_checkout_has_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
        assert names == files().keys()
        assert [name for name, path in files().items() if packed.read(name) != path.read_bytes()] == []


def test_every_module_of_the_wheel_can_be_imported(installed):
    wanted = sorted(set(modules()) - RUN_AS_FILES)

    said = run(installed / "python", "-c", IMPORT_ALL, folder=installed, given="\n".join(wanted))

    assert said.split() == wanted
    for name in RUN_AS_FILES:
        (path,) = installed.parent.glob(f"lib/python*/site-packages/{name.replace('.', '/')}.py")
        assert py_compile.compile(str(path), doraise=True)


def test_what_is_installed_runs_the_readme_s_ten_lines(installed, tmp_path):
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[0]

    said = run(installed / "python", "-c", program, folder=tmp_path)

    assert said == "{'id': 1, 'price': 12.5, 'qty': 100} 1\n"


def test_what_is_installed_has_the_command(installed, tmp_path):
    assert run(installed / "ampsq", "--version", folder=tmp_path).split()[-1] == ampsq.__version__
