"""From a recording to a ranking by what the whole program could gain. Pure functions; docs/scan.md says why so."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_assistant.records.scan import (
    RecordedClass,
    RecordedConfiguration,
    RecordedSignature,
    Recording,
    Sample,
    ScannedClass,
    ScannedConfiguration,
)


@dataclass(frozen=True)
class Ceiling:
    """`bandwidth` in bytes/s, 0 where it is not known; calls below twice `cache_bytes` may beat it."""

    bandwidth: float = 0.0
    cache_bytes: int = 0


def rank(recording: Recording, ceiling: Ceiling) -> tuple[ScannedClass, ...]:
    """Classes with time of their own, by the seconds that could be saved at most, then by their share."""
    rows = [_row(cls, recording.net_seconds, ceiling) for cls in recording.classes if not cls.container]
    rows = [row for row in rows if row.share_seconds > 0]
    return tuple(sorted(rows, key=lambda row: (-row.saved_seconds, -row.share_seconds, row.key)))


def floor_seconds(cls: RecordedClass, ceiling: Ceiling) -> float:
    """What remains of the class's share at least: its products, or the traffic of its calls less the modules inside."""
    inside = max(cls.inclusive_seconds - cls.share_seconds, 0.0)
    return min(max(cls.products_seconds, _traffic(cls, ceiling) - inside, 0.0), max(cls.share_seconds, 0.0))


def amdahl(wall: float, saved: float) -> float:
    """How many times as fast the whole program is once `saved` of its `wall` seconds are gone."""
    return wall / max(wall - saved, 1e-9 * wall)


def _row(cls: RecordedClass, wall: float, ceiling: Ceiling) -> ScannedClass:
    share = max(cls.share_seconds, 0.0)
    floor = floor_seconds(cls, ceiling)
    served = max(0.0, 1.0 - sum(cls.unserved_seconds.values()) / share) if share else 0.0
    saved = served * (share - floor)
    best = _configuration(cls)
    kinds = _kinds(best) if best is not None else []
    problem = _problem(cls, best, kinds[0].samples if kinds else ())
    others = [kind for one in cls.configurations if one is not best and one.kept for kind in _kinds(one)]
    first = None if problem else kinds[0]
    return ScannedClass(
        name=cls.name,
        qualname=cls.qualname,
        module=cls.module,
        path=cls.path,
        line=0,
        installed=cls.installed,
        calls=cls.calls,
        share_seconds=share,
        inclusive_seconds=cls.inclusive_seconds,
        products_seconds=cls.products_seconds,
        floor_seconds=floor,
        unserved_seconds=cls.unserved_seconds,
        saved_seconds=saved,
        speedup_at_floor=amdahl(wall, saved),
        speedup_at_double=amdahl(wall, min(saved, served * share / 2)),
        folder=first.folder if first else "",
        training=first.training if first else False,
        samples=first.samples if first else (),
        problem=problem,
        more=tuple(sorted(kinds[1:] + others, key=lambda one: -one.seconds)) if first else (),
        first_seconds=cls.first_seconds,
    )


def _traffic(cls: RecordedClass, ceiling: Ceiling) -> float:
    """Seconds to move inputs, parameters and outputs of all calls once; calls that may stay in the cache count none."""
    if not ceiling.bandwidth:
        return 0.0
    moved, seconds = 0, 0.0
    for configuration in cls.configurations:
        for signature in configuration.signatures:
            size = signature.input_bytes + signature.output_bytes + configuration.parameter_bytes
            moved += signature.calls * size if size >= 2 * ceiling.cache_bytes else 0
            seconds += signature.seconds
    # A class that calls itself is timed once, at its outermost call, but counted at each.
    once = min(1.0, cls.inclusive_seconds / seconds) if seconds > 0 else 1.0
    return once * moved / ceiling.bandwidth


def _configuration(cls: RecordedClass) -> RecordedConfiguration | None:
    """The one that took most time, among those that were kept if any were."""
    kept = [one for one in cls.configurations if one.kept and any(s.sample >= 0 for s in one.signatures)]
    return max(kept or cls.configurations, key=lambda one: one.seconds, default=None)


def _kinds(configuration: RecordedConfiguration) -> list[ScannedConfiguration]:
    """The kept calls by kind, the kind and in it the call that took most time first."""
    kinds: dict[str, list[RecordedSignature]] = {}
    for one in sorted(configuration.signatures, key=lambda one: -one.seconds):
        if one.sample >= 0:
            kinds.setdefault(one.kind, []).append(one)
    found = [
        ScannedConfiguration(
            seconds=sum(one.seconds for one in calls),
            folder=configuration.folder,
            training=calls[0].training,
            samples=tuple(Sample(number=one.sample, text=one.text, exact=one.exact) for one in calls),
        )
        for calls in kinds.values()
    ]
    return sorted(found, key=lambda one: -one.seconds)


def _problem(cls: RecordedClass, configuration: RecordedConfiguration | None, samples: tuple[Sample, ...]) -> str:
    if not cls.path:
        return "its source is in no file"
    if "." in cls.qualname:
        return "it is nested in a function or a class"
    if configuration is None or not samples:
        return "; ".join(configuration.notes) if configuration and configuration.notes else "no inputs were kept"
    if not configuration.kept:
        return "; ".join(configuration.notes) or "the module was not kept"
    return ""
