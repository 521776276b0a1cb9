"""Ranks the classes of a recording by the time that kernels for them could save (docs/scan.md). Pure functions."""

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
class RooflineBandwidth:
    """The measured memory bandwidth of a device: `bandwidth` in bytes/s, 0 if unknown. It is no limit for calls that
    move less than twice `cache_bytes`, because their data may be in the cache."""

    bandwidth: float = 0.0
    cache_bytes: int = 0


def rank(recording: Recording, ceiling: RooflineBandwidth) -> tuple[ScannedClass, ...]:
    """Returns the classes sorted by the seconds that kernels could save, most first, then by their own time. A class's
    own time is that of its calls without the modules inside it; classes without own time are left out."""
    rows = [_row(cls, recording.counted_seconds, ceiling) for cls in recording.classes if not cls.container]
    rows = [row for row in rows if row.share_seconds > 0]
    return tuple(sorted(rows, key=lambda row: (-row.saved_seconds, -row.share_seconds, row.key)))


def floor_seconds(cls: RecordedClass, ceiling: RooflineBandwidth) -> float:
    """Returns the lower bound (roofline) in seconds for a class's own time, without the modules inside it. It is the
    time of its matrix products and convolutions or, if longer, the time of its calls' memory traffic minus the time of
    the modules inside; at most the class's own time."""
    inside = max(cls.inclusive_seconds - cls.share_seconds, 0.0)
    return min(max(cls.products_seconds, _traffic(cls, ceiling) - inside, 0.0), max(cls.share_seconds, 0.0))


def amdahl(whole: float, saved: float) -> float:
    """Returns the speed-up of a program that takes `whole` seconds, if `saved` of these seconds are saved (Amdahl's
    law)."""
    return whole / max(whole - saved, 1e-9 * whole)


def _row(cls: RecordedClass, whole: float, ceiling: RooflineBandwidth) -> ScannedClass:
    share = max(cls.share_seconds, 0.0)
    floor = floor_seconds(cls, ceiling)
    served = max(0.0, 1.0 - sum(cls.unserved_seconds.values()) / share) if share else 0.0
    saved = served * (share - floor)
    best = _configuration(cls)
    kinds = _kinds(best) if best is not None else []
    problem = _problem(cls, best, kinds[0].samples if kinds else ())
    kept = [one for one in cls.configurations if one.kept and any(map(_is_usable, one.signatures))]
    others = [kind for one in kept if one is not best for kind in _kinds(one)]
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
        speedup_at_floor=amdahl(whole, saved),
        speedup_at_double=amdahl(whole, min(saved, served * share / 2)),
        folder=first.folder if first else "",
        training=first.training if first else False,
        samples=first.samples if first else (),
        problem=_location_problem(cls) or _refusal(best) or problem,
        more=tuple(sorted(kinds[1:] + others, key=lambda one: -one.seconds)) if first else (),
        first_seconds=cls.first_seconds,
        warm_seconds=cls.warm_seconds,
        main_seconds=first.seconds if first else 0.0,
        main_calls=first.calls if first else 0,
        objects=_objects(cls),
    )


def _objects(cls: RecordedClass) -> tuple[str, ...]:
    signatures = [signature for one in cls.configurations for signature in one.signatures]
    return tuple(dict.fromkeys(words for signature in signatures for words in signature.objects))


def _is_usable(signature: RecordedSignature) -> bool:
    """Whether a call with this signature was kept and can be repeated, because it has no objects as arguments."""
    return signature.sample >= 0 and not signature.objects


def _traffic(cls: RecordedClass, ceiling: RooflineBandwidth) -> float:
    """Returns the seconds that the device needs to read inputs and parameters and to write outputs of all calls, each
    once. Calls whose data may stay in the cache count as 0."""
    if not ceiling.bandwidth:
        return 0.0
    moved, seconds = 0, 0.0
    for configuration in cls.configurations:
        for signature in configuration.signatures:
            size = signature.input_bytes + signature.output_bytes + configuration.parameter_bytes
            moved += signature.counted_calls * size if size >= 2 * ceiling.cache_bytes else 0
            seconds += signature.seconds
    # A class that calls itself is timed only at the outermost call, but every call is counted.
    once = min(1.0, cls.inclusive_seconds / seconds) if seconds > 0 else 1.0
    return once * moved / ceiling.bandwidth


def _configuration(cls: RecordedClass) -> RecordedConfiguration | None:
    """Returns the configuration (instances of a class with equal parameter shapes) that took most time: among those
    with a call that can be repeated; if there are none, among those with kept inputs; else among all. None if the class
    has no configurations."""
    kept = [one for one in cls.configurations if one.kept and any(s.sample >= 0 for s in one.signatures)]
    usable = [one for one in kept if any(map(_is_usable, one.signatures))]
    return max(usable or kept or cls.configurations, key=lambda one: one.seconds, default=None)


def _kinds(configuration: RecordedConfiguration) -> list[ScannedConfiguration]:
    """Returns the kept calls of a configuration, grouped by their kind of inputs (structure, dtypes, ranks). Groups,
    and calls in a group, are sorted by time, longest first. Calls with objects as arguments are included only if there
    are no other calls."""
    kept = [one for one in configuration.signatures if one.sample >= 0]
    kinds: dict[str, list[RecordedSignature]] = {}
    for one in sorted(filter(_is_usable, kept), key=lambda one: -one.seconds) or kept:
        kinds.setdefault(one.kind, []).append(one)
    configurations = [
        ScannedConfiguration(
            seconds=sum(one.seconds for one in calls),
            folder=configuration.folder,
            training=calls[0].training,
            samples=tuple(Sample(number=one.sample, text=one.text, exact=one.exact, calls=one.calls) for one in calls),
            calls=sum(one.calls for one in calls),
        )
        for calls in kinds.values()
    ]
    return sorted(configurations, key=lambda one: -one.seconds)


def _problem(cls: RecordedClass, configuration: RecordedConfiguration | None, samples: tuple[Sample, ...]) -> str:
    """Returns why no call of the class can be repeated; "" if some call can."""
    if problem := _location_problem(cls):
        return problem
    if configuration is None or not samples:
        return "; ".join(configuration.notes) if configuration and configuration.notes else "no inputs were kept"
    if not configuration.kept:
        return "; ".join(configuration.notes) or "the module was not kept"
    return ""


def _location_problem(cls: RecordedClass) -> str:
    if not cls.path:
        return "its source is in no file"
    return "it is nested in a function or a class" if "." in cls.qualname else ""


def _refusal(configuration: RecordedConfiguration | None) -> str:
    """Returns a message if no kept call can be repeated, because all of them have objects as arguments; else ""."""
    signatures = () if configuration is None else configuration.signatures
    objects = list(dict.fromkeys(words for one in signatures for words in one.objects))
    if not objects or any(map(_is_usable, signatures)):
        return ""
    return f"{', '.join(objects)}: scan it called without (a cache: use_cache=False), or declare its inputs"
