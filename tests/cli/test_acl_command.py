"""acl: what it prints is what a server takes."""

from __future__ import annotations

import hashlib
import shlex
from contextlib import ExitStack

import pytest

from ampsq import Client, Queue
from ampsq.base.errors import NotPermitted
from ampsq.cli.acl import _ROLES
from ampsq.operations.roles import ROLES, rules
from ampsq.protocol.request import command


def test_the_command_offers_all_roles():
    assert tuple(ROLES) == _ROLES


def test_a_rule_that_was_printed_makes_a_user_who_may_work(defined):
    run = defined
    (run.folder / "secret").write_text("till secret\n")

    line = run("acl", "publisher", "--user", "till-4", "--topic", "orders", "--password-file", "secret").out

    with run.client() as client:
        client._store.call(command(shlex.split(line), bool))
        try:
            mine = client.url.replace("unix://", "unix://till-4:till%20secret@")
            assert run("publish", "orders", '{"id": 1}', "--url", mine).out.startswith("orders~")
            assert "allow it to the user" in run("publish", "new", "1", "--url", mine, code=1).err
            assert "till%20secret" not in run("publish", "new", "1", "--url", mine, code=1).err
        finally:
            client._store.call(command(["ACL", "DELUSER", "till-4"], bool))


def test_a_rule_without_a_password_says_that_nobody_can_log_in(run):
    done = run("acl", "worker", "--instance", "nyc-1")

    assert done.out == f"ACL SETUSER nyc-1-worker {' '.join(rules('worker', 'nyc-1').words())}\n"
    assert "nyc-1-worker cannot log in yet" in done.err


def test_rules_of_an_instance_with_partitions_are_of_all_of_them_and_of_no_other_instance(run):
    numbers = {str(number) for number in range(24)}
    with run.client() as operator, ExitStack() as stack:
        urls, of_all = {}, ("--instance", "shop", "--url", f"{operator.url}?partitions=12")
        for role in ("admin", "publisher", "worker"):
            line = run("acl", role, "--user", role, "--password-file", "-", *of_all, stdin="s3cret\n").out
            operator._store.call(command(shlex.split(line), bool))
            stack.callback(operator._store.call, command(["ACL", "DELUSER", role], bool))
            urls[role] = operator.url.replace("unix://", f"unix://{role}:s3cret@")
        with Client(urls["admin"], instance="shop", partitions=12) as admin:
            admin.apply(Queue(name="work", max_per_subscription_backlog=2))
        with Client(urls["publisher"], instance="shop", partitions=12) as publisher:
            publisher.publish_many("work", sorted(numbers), batch=1)

        with Client(urls["worker"], instance="shop", partitions=12) as worker:
            with worker.subscribe("work", max_backlog=24) as subscription:
                messages = [subscription.get(5.0) for _ in numbers]
                for message in messages:
                    message.ack()
            assert worker.admin.queue_stats("work").depth == 0
        assert {message.data for message in messages} == numbers
        for url in urls.values():
            with pytest.raises(NotPermitted):
                Client(url, instance=operator.instance)


def test_a_line_for_a_file_and_json_have_the_hash_of_the_password_alone(run):
    hashed = hashlib.sha256(b"s3cret").hexdigest()

    line = run("acl", "admin", "--file", "--password-file", "-", stdin="s3cret\n").out
    (facts,) = run("acl", "admin", "--json", "--password-file", "-", stdin="s3cret\n").json

    assert line.startswith("user ")
    assert f" #{hashed} " in line
    assert hashed in facts["rule"]
    assert "s3cret" not in line + str(facts)
    assert {"evalsha", "config|get"} <= set(facts["commands"])


def test_what_a_role_cannot_be_bound_to_is_refused_with_what_can(run):
    assert "bounded by the gateway's entitlements" in run("acl", "worker", "--topic", "orders", code=1).err
