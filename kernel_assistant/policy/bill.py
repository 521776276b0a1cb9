"""Bill: the spending of all conversations of a job together, and the money that is left of the job's limit."""

from __future__ import annotations

import math
import threading

import msgspec

from kernel_assistant.records.spending import PRICED_TOKENS, Price, Spending


class Bill:
    """Counts the tokens and the money that one job spends on models. Thread-safe. `before` is what the same job spent
    earlier; `limit` is in the currency of the price. Raises ValueError for a limit without a price."""

    def __init__(self, price: Price | None = None, limit: float | None = None, before: Spending | None = None) -> None:
        if limit is not None and price is None:
            raise ValueError("a limit of money needs a price")
        self._price, self._limit = price, math.inf if limit is None else limit
        self._lock = threading.Lock()
        self._spent = self._priced(before or Spending())

    @property
    def spent(self) -> Spending:
        return self._spent

    def add(self, tokens_in: int, tokens_out: int, *, estimated: bool) -> None:
        """Adds one request with the tokens of its prompt (`tokens_in`) and of its reply (`tokens_out`). `estimated`
        says that the server did not count all of them."""
        with self._lock:
            spent = self._spent
            self._spent = self._priced(
                Spending(
                    requests=spent.requests + 1,
                    tokens_in=spent.tokens_in + tokens_in,
                    tokens_out=spent.tokens_out + tokens_out,
                    estimated=spent.estimated or estimated,
                )
            )

    def room(self, tokens_in: int) -> float:
        """Returns the number of tokens that the limit leaves for a reply to a prompt of `tokens_in` tokens. It is
        infinite without a limit or price, and negative if the limit does not even pay for the prompt."""
        if self._price is None or self._limit == math.inf:
            return math.inf
        left = self._limit - (self._spent.money or 0.0) - self._price.of(tokens_in, 0)
        if self._price.tokens_out:
            return left * PRICED_TOKENS / self._price.tokens_out
        return math.copysign(math.inf, left)

    def _priced(self, spent: Spending) -> Spending:
        money = None if self._price is None else self._price.of(spent.tokens_in, spent.tokens_out)
        return msgspec.structs.replace(spent, money=money)
