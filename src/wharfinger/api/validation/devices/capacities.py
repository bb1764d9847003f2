"""Validation of the capacities of devices, and of the policies for requests that share one."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.fields import duplicate, forbidden, invalid, required, too_many
from wharfinger.api.quantity import NANO, canonical, family, format_nano, parse_nano, value
from wharfinger.api.registry import Document
from wharfinger.api.validation.devices.wording import Faults

_MAX_OPTIONS = 10
_MAX_INT64 = (1 << 63) - 1


def single_capacity_faults(capacity: Document, path: str) -> Faults:
    """A capacity of a device that is allocated as a whole."""
    if capacity.get("requestPolicy") is not None:
        yield forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")


def shared_capacity_faults(capacity: Document, path: str) -> Faults:
    policy, total = capacity.get("requestPolicy"), capacity.get("value") or "0"
    if policy is None:
        return
    path = f"{path}.requestPolicy"
    options, span, default = policy.get("validValues") or (), policy.get("validRange"), policy.get("default")
    if options and span is not None:
        both = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(path, both)
    elif options:
        if default is None:
            yield required(f"{path}.default", "required when validValues is defined")
        else:
            yield from _options_faults(default, total, options, f"{path}.validValues")
    elif span is not None:
        if default is None:
            yield required(f"{path}.default", "required when validRange is defined")
        else:
            yield from _range_faults(default, total, span, f"{path}.validRange")


def _options_faults(default: str, total: str, options: Sequence[str], path: str) -> Faults:
    for index in range(1, len(options)):
        if parse_nano(options[index - 1]) > parse_nano(options[index]):
            yield invalid(f"{path}[{index}]", canonical(options[index]), "values must be sorted in ascending order")
    if len(options) > _MAX_OPTIONS:
        yield too_many(path, len(options), _MAX_OPTIONS)
        found = False
    else:
        for index, option in enumerate(options):
            if parse_nano(option) > parse_nano(total):
                larger = f"option is larger than capacity value: {canonical(total)}"
                yield invalid(f"{path}[{index}]", canonical(option), larger)
        whole = [str(value(option)) for option in options]
        for index, option in enumerate(whole):
            if option in whole[:index]:
                yield duplicate(f"{path}[{index}]", option)
        found = any(parse_nano(option) == parse_nano(default) for option in options)
    if not found:
        yield invalid(path, canonical(default), "default value is not valid according to the requestPolicy")


def _range_faults(default: str, total: str, span: Document, path: str) -> Faults:
    low, high, step = span.get("min"), span.get("max"), span.get("step")
    if low is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    size, least, chosen = parse_nano(total), parse_nano(low), parse_nano(default)
    if least > size:
        yield invalid(f"{path}.min", canonical(low), f"min is larger than capacity value: {canonical(total)}")
    if chosen < least:
        yield invalid(f"{path}.default", canonical(default), f"default is less than min: {canonical(low)}")
    if high is not None:
        most = parse_nano(high)
        if least > most:
            yield invalid(f"{path}.max", canonical(low), f"min is larger than max: {canonical(high)}")
        if most > size:
            yield invalid(f"{path}.max", canonical(high), f"max is larger than capacity value: {canonical(total)}")
        if chosen > most:
            yield invalid(f"{path}.default", canonical(default), f"default is more than max: {canonical(high)}")
    if step is not None:
        yield from _step_faults(default, total, span, path)


def _step_faults(default: str, total: str, span: Document, path: str) -> Faults:
    low, high, step = span["min"], span.get("max"), span["step"]
    if parse_nano(step) <= 0:
        yield invalid(f"{path}.step", canonical(step), "must be greater than zero")
        return
    added = parse_nano(low) + parse_nano(step)
    if added > parse_nano(total):
        first = format_nano(added, family(low))
        larger = f"one step {first} is larger than capacity value: {canonical(total)}"
        yield invalid(f"{path}.step", canonical(step), larger)
    outside = False
    for name, bound in (("default", default), ("min", low), ("max", high), ("step", step)):
        if bound is None:
            continue
        if parse_nano(bound) < 0:
            outside = True
            yield invalid(f"{path}.{name}", canonical(bound), "must be greater than or equal to 0")
        elif parse_nano(bound) > _MAX_INT64 * NANO:
            outside = True
            yield invalid(f"{path}.{name}", canonical(bound), f"must not be larger than {_MAX_INT64}")
    if outside:
        return
    for bound in (default, high):
        if bound is not None and (value(bound) - value(low)) % value(step):
            detail = f"value is not a multiple of a given step ({canonical(step)}) from ({canonical(low)})"
            yield invalid(f"{path}.step", canonical(bound), detail)
