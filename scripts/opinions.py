"""Has the Python implementation of the Avro project judge our verdicts.

What it cannot read we must refuse, and what both read must be the same value:
our JSON says which. What we refuse is not shown to it: it checks less than we
do, and reads arrays of 2^60 values without bytes for ever.
"""
import io
import json
import logging
import math
import sys

import avro.io
import avro.schema

logging.disable(logging.CRITICAL)
sys.setrecursionlimit(10000)


def same(schema, value, text):
    """Whether a value is what our JSON says, by Avro's JSON encoding."""
    kind = schema.type
    if kind == "union":
        branches = [s for s in schema.schemas if s.type != "null"]
        if text is None or value is None:
            return text is value
        if len(branches) == len(schema.schemas) or len(schema.schemas) != 2:
            if not isinstance(text, dict) or len(text) != 1:
                return False
            name, text = next(iter(text.items()))
            branches = [s for s in branches if getattr(s, "fullname", s.type) == name or s.type == name]
        return any(same(s, value, text) for s in branches)
    if kind in ("record", "error"):
        return set(value) == set(text) and all(same(f.type, value[f.name], text[f.name]) for f in schema.fields)
    if kind == "array":
        return len(value) == len(text) and all(same(schema.items, v, t) for v, t in zip(value, text))
    if kind == "map":
        return set(value) == set(text) and all(same(schema.values, v, text[k]) for k, v in value.items())
    if kind in ("bytes", "fixed"):
        if not isinstance(value, bytes):  # a decimal, which Python converts
            raw = text.encode("latin-1")
            return value == value.__class__(int.from_bytes(raw, "big", signed=True)).scaleb(-schema.scale)
        return value == text.encode("latin-1")
    if kind in ("float", "double"):
        number = float(text)
        if kind == "float" and not math.isnan(number) and not math.isinf(number):
            import struct

            number = struct.unpack("<f", struct.pack("<f", number))[0]
        return number == value or math.isnan(number) and math.isnan(value)
    if not isinstance(value, (bool, int, str, type(None))):
        return True  # dates and times, which Python converts
    return value == text


def main():
    schemas, count, valid, wrong = {}, 0, 0, 0
    for line in open(sys.argv[1], encoding="utf-8"):
        case = json.loads(line)
        count += 1
        if not case["valid"]:
            continue
        valid += 1
        text = case["schema"]
        if text not in schemas:
            schemas[text] = avro.schema.parse(text)
        schema = schemas[text]
        buf = io.BytesIO(bytes.fromhex(case["hex"]))
        try:
            value = avro.io.DatumReader(schema, schema).read(avro.io.BinaryDecoder(buf))
            readable = buf.read(1) == b""
        except Exception as e:  # whatever it raises: it cannot read it
            value, readable, reason = None, False, repr(e)
        else:
            reason = "bytes are left"
        if not readable and not excused(reason):
            wrong += 1
            print("Python cannot read what we accept:", text, case["hex"], reason)
        elif readable and not same(schema, value, json.loads(case["json"])):
            wrong += 1
            print("another value:", text, case["hex"], repr(value), case["json"])
    print(f"python avro: {valid} valid of {count} cases, {wrong} differences")
    sys.exit(wrong > 0)


def excused(reason):
    """What Python cannot hold, and Avro allows: dates beyond the year 9999."""
    return "OverflowError" in reason or "date value out of range" in reason


main()
