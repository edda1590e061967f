"""Result files of the Windows kit, made up: what test.ps1 would write if both sides agreed."""

from __future__ import annotations

from typing import Any

from postroad.cli.kit import STEPS

SAMPLES: dict[str, Any] = {
    "id": r"{0b1f0c8e-5a39-4d6f-9a55-0d3b7c1f2e44}\2049",
    "correlation_id": r"{01234567-89ab-cdef-0123-456789abcdef}\99",
    "label": "send express",
    "body": "body of send express",
    "body_type": 8,
    "priority": 5,
    "delivery": "express",
    "labels": ["one", "two", "three"],
    "received": ["one", "two", "three"],
    "acknowledgments": ["ack-reach-queue", "ack-receive"],
    "first": True,
    "last": True,
    "encrypted": True,
    "authenticated": True,
}


def fact(name: str, windows: Any = None, postroad: Any = None) -> dict[str, Any]:
    value = SAMPLES.get(name, 7)
    return {
        "name": name,
        "windows": value if windows is None else windows,
        "postroad": value if postroad is None else postroad,
    }


def result(**members: Any) -> dict[str, Any]:
    """A result in which every step was done and all facts agree."""
    steps = [
        {"name": name, "state": "done", "reason": "", "facts": [fact(each) for each in step.facts]}
        for name, step in STEPS.items()
    ]
    side = {"version": "1", "address": "10.0.0.7", "details": ["MSMQ-Server"]}
    return {
        "kit": 1,
        "started": "2026-11-19T20:00:00Z",
        "finished": "2026-11-19T20:05:00Z",
        "prefix": "postroad-kit-0a1b2c3d",
        "windows": {"computer": "WINSERVER", **side},
        "postroad": {"computer": "alpha", **side},
        "steps": steps,
        "captures": ["result.pcapng"],
    } | members


def step(value: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in value["steps"] if each["name"] == name)
    return found
