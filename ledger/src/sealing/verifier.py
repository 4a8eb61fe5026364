"""Computes the root of a day from ledger.db, as docs/truth.md says it. Arguments: file, tenant, day, source, last place."""

import base64
import datetime
import hashlib
import json
import sqlite3
import sys

FIELDS = """request_id client_request_id tenant user key_id key_name job_id end_user surface model served_model provider
endpoint_id backend outcome status error_code stream started_at ended_at input_tokens cached_tokens cache_write_tokens
output_tokens reasoning_tokens images usage_source usage_flags price_version prices cost_nano_usd cost_usd
upstream_cost_nano_usd absorbed_nano_usd node config_revision waybill_day billing_day billing_month source
source_sequence event_id""".split()
ADJUSTED = """request_id number tenant user key_id job_id model served_model provider endpoint_id started_at billing_day
billing_month was_nano_usd cost_nano_usd amount_nano_usd prices price_version reason actor adjusted_at node source
source_sequence event_id""".split()
ACTOR = "tenant user key_id key_name".split()
RATES = "input cached cache_write output request image".split()


def field(row, name):
    value = row[name]
    if value is None:
        return b"-"
    if name == "usage_flags":
        value = ",".join(json.loads(value))
    if name == "prices":
        rates = json.loads(value)
        value = ",".join(str(rates[rate]) for rate in RATES)
    if name == "actor":
        return b"".join(field(json.loads(value), part) for part in ACTOR)
    text = str(value).encode()
    return str(len(text)).encode() + b":" + text


def leaf(row):
    return hashlib.sha256(b"\0waybill.row.1\n" + b"".join(field(row, name) for name in FIELDS)).digest()


def leaf_of_adjustment(row):
    return hashlib.sha256(b"\0waybill.adjustment.1\n" + b"".join(field(row, name) for name in ADJUSTED)).digest()


def root(level):
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [hashlib.sha256(b"\1" + b"".join(pair)).digest() if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]


def day_of(row):
    millis = int(row["request_id"].replace("-", "")[:12], 16)
    return datetime.datetime.fromtimestamp(millis / 1000, datetime.timezone.utc).date().isoformat()


file, tenant, day, source, last = sys.argv[1:]
books = sqlite3.connect(file)
books.row_factory = sqlite3.Row
rows = books.execute("SELECT * FROM api_logs WHERE tenant = ? AND NOT provisional ORDER BY request_id", (tenant,))


def is_covered(row):
    return day_of(row) == day and row["source"] == source and row["source_sequence"] <= int(last)


leaves = [leaf(row) for row in rows if is_covered(row)]
rows = books.execute("SELECT * FROM adjustments WHERE tenant = ? ORDER BY request_id, number", (tenant,))
leaves += [leaf_of_adjustment(row) for row in rows if is_covered(row)]
print(base64.urlsafe_b64encode(root(leaves)).decode().rstrip("="))
