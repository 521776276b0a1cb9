"""Tests what a job's requests cost, and what a limit of money leaves."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from kernel_assistant.config import resolve
from kernel_assistant.errors import UsageError
from kernel_assistant.policy.bill import Bill
from kernel_assistant.records import OptimizeResult, Price, Spending, decode, encode
from kernel_assistant.serving.registry import ModelKind, as_text, entries, entry_for, price_of, registry_file
from kernel_assistant.session.prepare import check_policy
from kernel_assistant.session.reporting.words import of_spending
from kernel_assistant.store import JobOptions
from tests.common import results

PRICE = Price(tokens_in=2.0, tokens_out=8.0)


def test_a_bill_adds_up_from_several_threads():
    bill = Bill(PRICE, before=Spending(requests=1, tokens_in=1000, tokens_out=500))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bill.add(10, 3, estimated=False), range(400)))
    spent = bill.spent
    assert (spent.requests, spent.tokens_in, spent.tokens_out, spent.estimated) == (401, 5000, 1700, False)
    assert spent.money == pytest.approx(5000 * 2e-6 + 1700 * 8e-6)
    bill.add(1, 1, estimated=True)
    assert bill.spent.estimated


def test_what_a_limit_leaves():
    bill = Bill(PRICE, limit=0.01)
    assert bill.room(1000) == pytest.approx(1000)
    bill.add(1000, 900, estimated=False)
    assert bill.room(0) == pytest.approx(100)
    assert bill.room(1000) < 0
    assert Bill(PRICE).room(10**9) == Bill().room(10**9) == math.inf
    free_replies = Bill(Price(tokens_in=1.0, tokens_out=0.0), limit=0.001)
    assert (free_replies.room(999), free_replies.room(1001)) == (math.inf, -math.inf)
    with pytest.raises(ValueError, match="needs a price"):
        Bill(None, limit=1.0)


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (None, ""),
        (Spending(), ""),
        (Spending(requests=1, tokens_in=120, tokens_out=7), "1 request, 120 tokens in, 7 out"),
        (
            Spending(requests=3, tokens_in=12_140, tokens_out=1_234, money=0.0342),
            "3 requests, 12.1k tokens in, 1.2k out, cost 0.034",
        ),
        (
            Spending(requests=9, tokens_in=1_500_000, tokens_out=999_960, money=12.345, estimated=True),
            "9 requests, about 1.5M tokens in, 1.0M out, cost 12.35",
        ),
        (Spending(requests=2, tokens_in=5, tokens_out=5, money=0.0), "2 requests, 5 tokens in, 5 out, cost 0.00"),
    ],
)
def test_in_words(spent, words):
    assert of_spending(spent) == words


def test_results_and_jobs_of_older_versions_stay_readable():
    older = msgspec.to_builtins(results.result())
    del older["spent"]
    assert decode(encode(older), OptimizeResult).spent is None
    options = msgspec.to_builtins(JobOptions())
    del options["money"], options["price"]
    assert decode(encode(options), JobOptions) == JobOptions()


@pytest.fixture
def settings(tmp_path, registered):
    """A function: fields → settings, with two models in the registry of which one has a price."""
    registered(
        '[old]\nkind = "endpoint"\nwhere = "http://a/v1"\n\n'
        '[paid]\nkind = "endpoint"\nwhere = "http://b/v1"\nprice_in = 2\nprice_out = 0\n'
    )
    return lambda **fields: resolve(tmp_path, fields)[0]


def test_the_registry_keeps_prices_also_of_nothing(settings):
    known = entries()
    assert known["old"].price is None
    assert known["paid"].price == Price(tokens_in=2.0, tokens_out=0.0)
    registry_file().write_text(as_text(known))
    assert entries() == known
    assert "price" not in as_text({"old": known["old"]})
    for wrong in ({"price_in": 1.0}, {"price_in": 1.0, "price_out": -1.0}, {"price_in": 1.0, "price_out": math.inf}):
        with pytest.raises(UsageError, match="a price is two numbers"):
            entry_for("http://c/v1", "c", **wrong)
    assert entry_for("http://c/v1").kind is ModelKind.endpoint


def test_a_limit_of_money_needs_a_price(settings):
    for how in ({"policy": "model"}, {"policy": "auto"}):
        with pytest.raises(UsageError, match="needs the price of old") as refused:
            check_policy(settings(money="1", endpoint="old", **how))
        assert refused.value.exit_code == 2 and "--price-in X --price-out Y" in refused.value.next_step
        check_policy(settings(money="1", endpoint="paid", **how))
        check_policy(settings(endpoint="old", **how))
        check_policy(settings(money="1", endpoint="old", price_in="0.5", price_out="2", **how))
    check_policy(settings(money="1", endpoint="old", policy="generator"))
    with pytest.raises(UsageError, match="needs the price of old"):
        check_policy(settings(money="1", endpoint="old", price_in="0.5"))
    for wrong in ({"money": "0"}, {"money": "much"}, {"price_in": "-1"}, {"tokens": "0"}):
        with pytest.raises(UsageError, match="does not fit"):
            settings(**wrong)


def test_a_models_own_price_goes_first(settings):
    known = entries()
    assert price_of(known["paid"], PRICE, 1.0) == known["paid"].price
    assert price_of(known["old"], PRICE, 1.0) == PRICE
    assert price_of(known["old"], None, None) is None
