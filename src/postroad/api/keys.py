"""Calls about the manager's own keys, for administrators. Private keys never leave the manager."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from postroad.api.calls import Answer, Call, Needs, Operations, json_answer
from postroad.api.formats import JSON

OPERATIONS = Operations()


@OPERATIONS.add(
    "GET /keys",
    "Show the public keys that other managers encrypt messages with",
    Answer(description="the keys to publish in the directory", content={JSON: "Keys"}),
    needs=Needs.MONITOR,
)
async def show_keys(call: Call) -> Response:
    return json_answer(call.manager.keys.describe())


@OPERATIONS.add(
    "POST /keys/rotate",
    "Make new keys; the previous ones still decrypt messages on their way",
    Answer(description="the new keys, which are on disk and in use", content={JSON: "Keys"}),
    errors=(HTTPStatus.BAD_REQUEST,),
    audited="rotate keys",
    needs=Needs.ADMINISTRATOR,
)
async def rotate_keys(call: Call) -> Response:
    keys = await call.manager.keys.rotate()
    call.facts["fingerprints"] = ",".join(each.fingerprint for each in keys.keys)
    return json_answer(keys)
