"""What conversations with models cost: requests, tokens, and money where the price is known."""

from __future__ import annotations

import math

from kernel_assistant.records.codec import Record

#: Prices are for this many tokens.
PRICED_TOKENS = 1_000_000


class Price(Record, frozen=True, kw_only=True):
    """Money for a million tokens that a model reads (`tokens_in`) and writes (`tokens_out`), in any currency."""

    tokens_in: float
    tokens_out: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(price) and price >= 0 for price in (self.tokens_in, self.tokens_out)):
            raise ValueError("a price is a number that is not negative")

    @classmethod
    def known(cls, tokens_in: float | None, tokens_out: float | None) -> Price | None:
        """Returns the price with these two numbers; None unless both are known."""
        return None if tokens_in is None or tokens_out is None else cls(tokens_in=tokens_in, tokens_out=tokens_out)

    def of(self, tokens_in: float, tokens_out: float) -> float:
        """Returns the money for `tokens_in` tokens that the model reads and `tokens_out` tokens that it writes."""
        return (self.tokens_in * tokens_in + self.tokens_out * tokens_out) / PRICED_TOKENS


class Spending(Record, frozen=True, kw_only=True):
    """The cost of replies of models, complete or not: `requests` is their number, `tokens_in` and `tokens_out` are the
    tokens of prompts and replies. `money` is None if no price is known; `estimated` says that a server did not count
    all tokens."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    money: float | None = None
    estimated: bool = False
