"""Documents are run: the README's ten lines and commands, the examples, the generated tables."""
# Long: one table: a test for each page, beside those of the other pages.

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from observing import eventually
from programs import Called, Shell

from ampsq import Client, ConflatedTopic, Destination, Instance, ReplicatedTopic
from ampsq.catalog.queue_changes import CHANGES
from ampsq.definitions.action_parts import CONDITIONS, STEPS, TRIGGERS
from ampsq.definitions.destination import CHECKS
from ampsq.definitions.queue import GroupLocalQueue, Queue, Topic
from ampsq.files.config import AT_THE_TOP, SECTIONS, load
from ampsq.operations.check.findings import DIFFERENCES
from ampsq.server.embedded import acquire

# What runs a program, or a page's commands, takes its time on a machine that is busy.
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
TOUR = (ROOT / "docs" / "tour.md").read_text()


def run(arguments, folder, *, timeout=240, **environment):
    return subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_a_page_begins_with_what_it_is_for(path):
    first = path.read_text().split("\n\n")[1]
    # That of all pages says first what ampsq is.
    assert path.stem == "index" or re.search(r"\bThis page\b|\b(is|are) for\b", first), first


def test_the_first_queues_that_a_newcomer_meets_have_room_for_a_worker():
    """By AMPS's default a subscription holds one message, whatever the concurrency of its worker."""
    ten_lines = README.partition("## Ten lines")[2]
    room = re.search(r"max_per_subscription_backlog=(\d+)", ten_lines[: ten_lines.index("with client.subscribe(")])
    assert room is not None
    assert int(room[1]) > 1
    # The worker that the tour starts with a concurrency, and the file that defines its queue.
    name, concurrency = re.search(r"ampsq worker \S+ --queue (\w+) --concurrency (\d+)", TOUR).groups()
    (queue,) = [
        each for each in load(ROOT / "examples" / "queues.yaml") if isinstance(each, Queue) and each.name == name
    ]
    assert queue.max_per_subscription_backlog >= 2 * int(concurrency)


def called(folder, url, words, **environment):
    """Return the output of a command, which is to succeed; in this process: the other way is shown elsewhere."""
    return in_folder(folder, url, **environment)(*words).out


def in_folder(folder, url, **environment):
    program = Called(folder, url)
    program.environment |= environment
    return program


def fenced(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_ten_lines_of_the_readme_do_what_they_say(tmp_path):
    done = run([sys.executable, "-c", fenced("python")[0]], tmp_path, AMPSQ_URL="")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'id': 1, 'price': 12.5, 'qty': 100} 1\n"


def test_the_worker_of_the_readme_handles_what_is_published(tmp_path):
    # Given its lines in a file, as it says
    (tmp_path / "tasks.py").write_text(fenced("python")[1])
    with acquire(tmp_path / "d") as server:
        environment = {**os.environ, "AMPSQ_URL": server.url}
        # When its commands run
        published = re.search(r"`(ampsq publish orders .*?)`", README)[1]
        called(tmp_path, server.url, shlex.split(published)[1:])
        with subprocess.Popen(
            [sys.executable, "-m", "ampsq.cli", "worker", "tasks:app"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as worker:
            try:
                # Then the message comes
                assert worker.stdout.readline() == "order 1\n"
            finally:
                worker.terminate()
                worker.wait(timeout=60)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 180


def test_what_the_tour_chooses_to_deliver_runs(tmp_path):
    done = run([sys.executable, "-c", blocks("tour.md", "python")[0]], tmp_path, AMPSQ_URL="")

    assert done.returncode == 0, done.stderr
    *results, sentence = done.stdout.splitlines()
    assert results == ["2", "1", "2", "1", "{'value': 84}"]
    assert sentence.startswith("The next message, of priority 60, ")


def test_the_asyncio_example_does_the_same(tmp_path):
    done = run([sys.executable, ROOT / "examples" / "asyncio_client.py"], tmp_path, AMPSQ_URL="")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "{'id': 1, 'price': 12.5, 'qty': 100} 1",
        "{'id': 3, 'price': 5, 'qty': 2} 1",
        "[2, 3]",
        "{'value': 70}",
    ]


def test_the_commands_of_the_tour_work_in_their_order(tmp_path):
    commands = [line.split("#")[0].strip() for line in blocks("tour.md", "console")[0].splitlines() if line.strip()]
    assert commands[0] == "ampsq up"

    with acquire(tmp_path / "d") as server:
        for command in commands[1:]:
            # The publish store of the example is not to stay here.
            words = [str(tmp_path / word) if word == "till-4.db" else word for word in shlex.split(command)[1:]]
            if words[0] == "worker":
                worker = subprocess.Popen(
                    [sys.executable, "-m", "ampsq.cli", *words], cwd=ROOT, env={**os.environ, "AMPSQ_URL": server.url}
                )
                worker.terminate()
                assert worker.wait(timeout=60) in (0, -15)
                continue
            # The rows of a view come a moment later.
            within = 30.0 if words[0] == "sow" else 0.0
            eventually(lambda words=words: called(ROOT, server.url, words), within)


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)


def test_the_commands_of_the_page_on_dead_letters_work_in_their_order(tmp_path):
    (tmp_path / "dead.yaml").write_text(blocks("dead-letters.md", "yaml")[0])

    with acquire(tmp_path / "d") as server:
        said = Shell(in_folder(tmp_path, server.url))(blocks("dead-letters.md", "console")[0])

    assert "2 would be redriven: 2 to work\nredriven 1: 1 to work\nredriven 1: 1 to work\n" in said
    assert said.endswith("dropped 0\n")


@pytest.mark.slow
def test_the_program_of_the_page_on_traces_prints_its_spans(tmp_path):
    done = run([sys.executable, "-c", blocks("tracing.md", "python")[0]], tmp_path, AMPSQ_URL="")

    assert (done.returncode, done.stdout) == (0, "publish orders\nprocess work\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            "coming-from-amps",
            r"\[{'id': 1, 'qty': 7}\]\n{'id': 1, 'qty': 5}\n{'id': 1, 'qty': 5} {'id': 1, 'qty': 7}\n",
        ),
        ("coming-from-others", r"job 1\njob 2\n0\n"),
        ("connections", ""),
        ("publishing", r"1 orders~ampsq\.\w+~\d+-0\n"),
        # Its second program reads what its first one published.
        ("replay", r"{'id': 1, 'price': 12.5}\n\[True\]\n1\n{'id': 1, 'price': 12.5}\n"),
    ],
)
def test_the_program_of_a_page_prints_what_it_says(tmp_path, page, said):
    programs = blocks(f"{page}.md", "python")
    program = "\n".join(programs if page == "replay" else programs[-1:])
    done = run([sys.executable, "-c", program], tmp_path, AMPSQ_URL="")

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(said, done.stdout), done.stdout


@pytest.mark.slow
def test_the_tutorial_works_from_its_first_command_to_its_last(tmp_path):
    shop, two, to_two = blocks("tutorial.md", "yaml")
    handler, program = blocks("tutorial.md", "python")
    files = {"shop.yaml": shop, "two.yaml": two, "to-two.yaml": to_two, "shop.py": handler}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = []

    with acquire(tmp_path / "d") as server, Client(server.url) as client:
        environment = {**os.environ, "AMPSQ_URL": server.url, "PATH": path}
        shell = Shell(in_folder(tmp_path, server.url))
        for block in blocks("tutorial.md", "console"):
            if "ampsq worker" in block:
                # A reader ends it with Ctrl-C, when nothing is left
                worker = subprocess.Popen(shlex.split(block), cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
                eventually(lambda: client.admin.queue_stats("work").depth == 0, within=120.0)
                # The first one gives a message up, which is a dead letter then; the second one none
                letters = 1 if len(said) == 1 else 0
                eventually(lambda: client.admin.queue_stats("dead").depth == letters, within=30.0)  # noqa: B023
                worker.terminate()
                said.append(worker.communicate(timeout=60)[0].decode())
            elif "&\n" in block:
                # What stays while others look at it is a process of its own
                done = run(["bash", "-euc", block], tmp_path, AMPSQ_URL=server.url, PATH=path)
                assert done.returncode == 0, (block, done.stderr)
                said.append(done.stdout)
            else:
                said.append(shell(block))
        done = run([sys.executable, "-c", program], tmp_path, AMPSQ_URL=server.url)
    created, first, mended, stuck, second, replicated = said

    assert created.count("orders~") == 6
    assert first == "order 1: 1250.00\norder 3: 14.00\n"
    assert "redriven 1: 1 to work" in mended
    assert "is leased" in stuck
    assert second == "order 2: 12.00\n"
    assert '{"id": 4, "price": 1, "qty": 1}' in replicated
    assert done.stdout == "5 1\n"


def test_the_app_of_the_page_on_workers_handles_what_its_queues_get(tmp_path):
    (tmp_path / "tasks.py").write_text(next(each for each in blocks("workers.md", "python") if "# tasks.py" in each))
    apply, worker = blocks("workers.md", "console")[0].splitlines()

    with acquire(tmp_path / "d") as server, Client(server.url) as client:
        said = Shell(in_folder(tmp_path, server.url))(f"{apply}\n")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        started = subprocess.Popen(
            shlex.split(worker),
            cwd=tmp_path,
            env={**os.environ, "AMPSQ_URL": server.url, "PATH": path},
            stdout=subprocess.PIPE,
        )
        # One after the other: lines that handlers print at the same time may run into each other
        for queue, data in (("orders", {"id": 1}), ("letters", "hello")):
            client.publish(queue, data)
            eventually(lambda queue=queue: client.admin.queue_stats(queue).depth == 0, within=120.0)
        started.terminate()
        out = started.communicate(timeout=60)[0].decode()

    assert "+ queue orders" in said
    assert (started.returncode, out.splitlines()) == (0, ["order 1", "letter hello"])


def test_the_commands_and_the_xml_of_the_page_on_ring_queues_work(tmp_path):
    (tmp_path / "rings.yaml").write_text(blocks("ring-queues.md", "yaml")[0])
    (tmp_path / "broker.xml").write_text(blocks("ring-queues.md", "xml")[0])
    commands = blocks("ring-queues.md", "console")[0] + "ampsq apply --yes broker.xml\n"

    with acquire(tmp_path / "d") as server:
        said = Shell(in_folder(tmp_path, server.url))(commands)

    assert [line[-9:] for line in said.splitlines() if line.endswith("}")] == [
        '{"id": 2}', '{"id": 3}', '{"id": 4}',
    ]  # fmt: skip
    assert "3 (address settings)" in said
    assert said.endswith("+ queue myRing\n    ring_size: 3\n1 new, 0 unchanged\n")


@pytest.mark.slow
def test_the_program_of_the_page_on_dead_letters_does_what_it_says(tmp_path):
    done = run([sys.executable, "-c", blocks("dead-letters.md", "python")[0]], tmp_path, AMPSQ_URL="")

    assert done.returncode == 0, done.stderr
    assert done.stdout == ("work ('forced_expire',) 1 {'id': 1, 'price': 0}\n1 {'work': 1} 0 {'id': 1, 'price': 5}\n")


@pytest.mark.slow
def test_the_program_of_the_page_on_publishing_records_what_has_an_id_once(tmp_path):
    done = run([sys.executable, "-c", blocks("publishing.md", "python")[0]], tmp_path, AMPSQ_URL="")

    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.slow
def test_the_program_of_the_page_on_a_message_s_life_says_how_far_it_is(tmp_path):
    done = run([sys.executable, "-c", blocks("message-life.md", "python")[0]], tmp_path, AMPSQ_URL="")

    assert done.returncode == 0, done.stderr
    assert ", picked up, 0.4 of it done (page 40 of 100), as it said " in done.stdout


@pytest.mark.slow
def test_the_program_of_the_page_on_a_message_s_life_says_why_it_ended(tmp_path):
    done = run([sys.executable, "-c", blocks("message-life.md", "python")[1]], tmp_path, AMPSQ_URL="")

    assert done.returncode == 0, done.stderr
    assert "because somebody expired it (no such flight: XX9), after 2 deliveries and 1 cancel." in done.stdout


def test_the_example_worker_handles_what_the_example_queues_bring(tmp_path):
    with acquire(tmp_path / "d") as server:
        cli = [sys.executable, "-m", "ampsq.cli"]
        environment = {"AMPSQ_URL": server.url}
        assert called(ROOT / "examples", server.url, ["apply", "--yes", "queues.yaml"])
        assert called(ROOT, server.url, ["publish", "orders", '{"id": 7, "price": 2, "qty": 4}'])
        worker = subprocess.Popen(
            [*cli, "worker", "order_worker:handle", "--queue", "work"],
            cwd=ROOT / "examples",
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert worker.stdout.readline() == "order 7: 8.00\n"
        finally:
            worker.terminate()
            worker.wait(timeout=60)
            worker.stdout.close()


def test_the_actions_of_the_document_can_be_defined_each_file_alone(tmp_path):
    page = (ROOT / "docs" / "actions.md").read_text()
    with acquire(tmp_path / "d", coordinator=False) as server:
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)):
            with Client(server.url, instance=f"i{number}") as client:
                definitions = load(text)
                assert {outcome for _, outcome in client.apply(*definitions)} == {"new"}
                assert {outcome for _, outcome in client.apply(*definitions)} == {"unchanged"}


@pytest.mark.slow
def test_the_python_of_the_document_of_actions_does_what_it_says(tmp_path):
    page = (ROOT / "docs" / "actions.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)

    done = run([sys.executable, "-c", code], tmp_path, AMPSQ_URL="")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'message': {'attempts': 1}, 'reason': 'forced_expire'}\n"


def test_the_commands_of_the_document_of_actions_work(tmp_path):
    page = (ROOT / "docs" / "actions.md").read_text()
    (commands,) = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    with acquire(tmp_path / "d", coordinator=False) as server:
        with Client(server.url) as client:
            client.apply(*load(re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)[0]))
        for command in commands.splitlines():
            called(ROOT, server.url, shlex.split(command)[1:])


def test_every_word_of_actions_is_in_the_document():
    page = (ROOT / "docs" / "actions.md").read_text()
    for word in (*TRIGGERS, *CONDITIONS, *STEPS):
        assert f"`{word}`" in page, word


@pytest.mark.slow
def test_the_page_on_the_state_of_the_world_does_what_it_says(tmp_path):
    (program,), (commands,) = blocks("sow.md", "python"), blocks("sow.md", "console")
    said = [line.split("# ", 1)[1].split(":")[0] for line in program.splitlines() if "print(" in line and "# " in line]

    with acquire(tmp_path / "d") as server:
        done = run([sys.executable, "-c", program], tmp_path, AMPSQ_URL=server.url)
        lines = done.stdout.splitlines()

        assert lines[:4] == ["{'id': 1, 'price': 12.5, 'state': 'paid'}", "7", "sow 2", "1"], done.stderr
        assert lines[4:] == ["[('publish', '', '3'), ('oof', 'deleted', '2')]", "['2', '1']", "True"]
        assert said[1:4] == ["7", "sow 2", "1"]
        for command in commands.splitlines():
            assert called(tmp_path, server.url, shlex.split(command)[1:]), command


def elements_of(kind):
    """Return the kind's elements, as its docstring has them, on a line each."""
    told = kind.__doc__.split("Attributes:")[1]
    found = re.findall(r"^        (\w+): (.*?)(?=^        \w+: |\Z)", told, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()).replace("``", "`").replace("|", "\\|") for name, text in found}


def test_the_table_of_queue_elements_is_the_models_own():
    rows = [f"| `{name}` | {text} |" for name, text in elements_of(Queue).items()]
    rows += [f"| `{name}` | {text} |" for name, text in elements_of(GroupLocalQueue).items()]
    changes = [f"| `{name}` | {change.effect} | {change.text} |" for name, change in CHANGES.items()]

    page = (ROOT / "docs" / "queues.md").read_text()

    assert [line for line in page.splitlines() if line.startswith("| `")] == rows + changes


def test_the_table_of_topic_elements_is_the_models_own():
    page = (ROOT / "docs" / "retention.md").read_text()

    assert [line for line in page.splitlines() if line.startswith("| `")] == [
        f"| `{name}` | {text} |" for name, text in elements_of(Topic).items()
    ]


def test_the_table_of_conflated_topics_is_the_model_s_own():
    section = (ROOT / "docs" / "slow-clients.md").read_text().split("### Conflated topics\n")[1].split("\n## ")[0]
    (text,) = re.findall(r"```yaml\n(.*?)```", section, flags=re.DOTALL)

    assert [line for line in section.splitlines() if line.startswith("| `")] == [
        f"| `{name}` | {text} |" for name, text in elements_of(ConflatedTopic).items()
    ]
    assert [definition.name for definition in load(text)] == ["trades", "trades-each-second", "large-trades"]


def test_the_tables_of_the_page_on_replication_are_the_models_own():
    section = (ROOT / "docs" / "replication.md").read_text().split("## Configuration\n")[1].split("### Addresses\n")[0]
    texts = [row for kind in (Instance, Destination, ReplicatedTopic) for row in elements_of(kind).items()]

    assert [line for line in section.splitlines() if line.startswith("| `")] == [
        f"| `{name}` | {text} |" for name, text in texts
    ]


def test_the_page_on_replication_explains_every_check():
    section = (ROOT / "docs" / "replication.md").read_text().split("### What both sides must agree on\n")[1]

    assert tuple(re.findall(r"^\| `(\w+)` \|", section.split("\n#")[0], re.MULTILINE)) == CHECKS


def test_the_file_of_the_page_on_replication_is_right():
    section = (ROOT / "docs" / "replication.md").read_text().split("### Addresses\n")[0]
    (text,) = re.findall(r"```yaml\n(.*?)```", section, flags=re.DOTALL)

    assert [definition.name for definition in load(text)] == ["nyc-1", "orders", "work", "nyc-2", "London"]


def test_the_file_of_the_page_on_configuration_can_be_applied(tmp_path):
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "orders.yaml").write_text("topics:\n  - name: orders\n")
    (tmp_path / "nyc-1.yaml").write_text(blocks("configuration.md", "yaml")[0])
    loaded = load(tmp_path / "nyc-1.yaml")

    assert loaded.url == "redis://localhost:6379"
    with acquire(tmp_path / "d", coordinator=False) as server:
        commands = blocks("configuration.md", "console")[0]
        assert "\nnothing to do: " in Shell(in_folder(tmp_path, server.url, AMPSQ_INSTANCE="nyc-1"))(commands)
        with Client(server.url, instance="nyc-1") as client:
            assert {outcome for _, outcome in client.apply(*loaded)} == {"unchanged"}
            assert {plan.outcome for plan in client.admin.plan(*load(tmp_path / "live.yaml"))} == {"unchanged"}


def test_the_file_of_the_page_on_configurations_of_amps_can_be_applied(tmp_path):
    (tmp_path / "amps.xml").write_text(blocks("amps-xml.md", "xml")[0])
    loaded = load(tmp_path / "amps.xml")

    assert [definition.name for definition in loaded] == ["amps-1", "Positions", "Jobs", "FailedJobs", "on-expire-Jobs"]
    with acquire(tmp_path / "d", coordinator=False) as server, Client(server.url, instance="amps-1") as client:
        assert {outcome for _, outcome in client.apply(*loaded)} == {"new", "changed"}


def test_the_page_on_configuration_names_all_that_a_file_may_have():
    page = (ROOT / "docs" / "configuration.md").read_text()
    for name in (*SECTIONS, *(name for _, names in AT_THE_TOP.values() for name in names)):
        assert f"`{name}`" in page, name


def test_the_topics_of_the_page_about_retention_are_right():
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "retention.md").read_text(), flags=re.DOTALL)

    assert [topic.has_retention for topic in load(text)] == [True] * 3


def test_the_table_of_differences_is_the_check_s_own():
    page = (ROOT / "docs" / "recovery.md").read_text()
    rows = [
        f"| `{name}` | {kind.meaning.format(n='N')} | {kind.mended} |" for name, kind in sorted(DIFFERENCES.items())
    ]

    assert sorted(line for line in page.splitlines() if line.startswith("| `")) == sorted(rows)


def test_the_commands_of_the_page_about_recovery_run(tmp_path):
    page = (ROOT / "docs" / "recovery.md").read_text()
    commands = [
        line.split("#")[0].strip()
        for block in re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(commands) == 5

    with acquire(tmp_path / "d") as server, Client(server.url) as client:
        client.apply(Queue(name="work", underlying_topic="orders"))
        bookmark = client.publish("orders", 1)
        for command in commands:
            words = shlex.split(command.replace("BOOKMARK", bookmark))[1:]
            assert called(ROOT, server.url, words), command


def test_the_page_about_the_gateway_does_what_it_says(tmp_path):
    from ampsq.gateway import Gateway, read_rules  # noqa: PLC0415 - an extra
    from ampsq.gateway.users import Secret  # noqa: PLC0415

    (rules,), (program,) = blocks("gateway.md", "yaml"), blocks("gateway.md", "python")
    rules = re.sub(r"secret: scrypt:\S+", f"secret: {Secret.of('tea')}", rules)
    with acquire(tmp_path / "d", coordinator=False) as server:
        gateway = Gateway(server.url, "ampsq", read_rules(rules))
        gateway.start()
        try:
            program = program.replace("http://127.0.0.1:8081", gateway.address)
            done = run([sys.executable, "-c", program], tmp_path)
        finally:
            gateway.stop()

    assert (done.stdout, done.stderr) == ("200 orders\nNotEntitled\n", "")


def test_the_page_about_the_gateway_names_every_bound():
    from ampsq.gateway.rules import Bounds  # noqa: PLC0415 - an extra

    page = (ROOT / "docs" / "gateway.md").read_text()
    assert [each for each in Bounds.__slots__ if f"| `{each}` |" not in page] == []


def test_the_rules_of_the_page_about_security_are_taken_by_a_server(tmp_path):
    commands = blocks("security.md", "console")[0].splitlines()

    with acquire(tmp_path / "d", coordinator=False) as server:
        for command in commands:
            assert called(tmp_path, server.url, shlex.split(command)[1:]), command


@pytest.mark.slow
def test_the_commands_of_the_page_about_the_console_serve_it(tmp_path):
    commands = [line.split("#")[0].strip() for line in blocks("console.md", "console")[0].splitlines()]
    assert len(commands) == 2

    with acquire(tmp_path / "d", coordinator=False) as server:
        for command in commands:
            # A port that another test may have is not asked for.
            words = shlex.split(command.replace(":8080", ":0").replace("URL", server.url))
            process = subprocess.Popen(
                [sys.executable, "-m", "ampsq.cli", *words[1:]], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("AMPSQ_")},
            )  # fmt: skip
            try:
                said = next(line for line in process.stdout if "console" in line)
                assert re.fullmatch(r"\s*console\s+http://127\.0\.0\.1:\d+/\?token=\S{32}\n", said), command
            finally:
                process.terminate()
                process.communicate(timeout=60)


@cache
def anchors(page):
    """Return the anchors of a page's headings, and of its elements that have one."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text), re.MULTILINE)
    slugs = {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
    return slugs | set(re.findall(r"id=\"([^\"]+)\"", text))


def test_every_link_of_the_documents_leads_somewhere():
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text()):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name}: {target}"
            assert not anchor or found.suffix != ".md" or anchor in anchors(found), f"{page.name}: {target}#{anchor}"


def test_an_anchor_is_what_browsers_ask_for(tmp_path):
    (tmp_path / "page.md").write_text("# A page's `name`, twice\n```\n# no heading\n```\n## [Linked](there.md): x\n")

    assert anchors(tmp_path / "page.md") == {"a-pages-name-twice", "linked-x"}


def test_the_reference_is_what_the_code_says():
    done = run([sys.executable, "docs/reference.py", "--check"], ROOT)

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    mkdocs = Path(sys.executable).with_name("mkdocs")
    if not mkdocs.exists():
        assert "AMPSQ_FORBID_SKIPS" not in os.environ, "mkdocs-material is part of the extra `dev`"
        pytest.skip("mkdocs is not installed: pip install 'ampsq[dev]'")

    done = run([mkdocs, "build", "--strict", "--site-dir", tmp_path], ROOT, NO_MKDOCS_2_WARNING="1")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "files" / "examples" / "order_worker.py").exists()
    # Every page can be found
    assert "not included in the" not in done.stderr


def test_every_decision_is_listed():
    pages = {path.name for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    listed = re.findall(r"\]\((0[^)]+)\)", (ROOT / "docs" / "decisions" / "index.md").read_text())
    assert sorted(pages) == listed
