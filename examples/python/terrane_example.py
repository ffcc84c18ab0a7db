"""Terrane from Python with only generated stubs. README.md says how to run it, docs/wire.md explains each step."""
import itertools, os, struct, sys, time
import grpc
from terrane.v1 import common_pb2 as common, data_pb2 as data, data_pb2_grpc, master_pb2 as admin, master_pb2_grpc

CALLS = {"Mutate": data.MutateCall, "Get": data.GetCall, "ScanOnce": data.ScanCall}
NOTHING_APPLIED = ("stale_epoch", "not_leader", "moving", "busy", "not_found")
master = master_pb2_grpc.MasterStub(grpc.insecure_channel(sys.argv[1]))
known = master.Identify(common.Hello(version_min=1, version_max=1), timeout=10)
hello = common.Hello(cluster_id=known.cluster_id)
clock_ms = known.cluster_time_ms - time.monotonic_ns() // 10**6 - 1_000  # Early is safe; ahead of a server's clock is not.
client_id, operations, servers = os.urandom(16), itertools.count(1), {}

def refusal(error):
    """The server's error. Without a kind it is the transport's, and a write may have been applied."""
    return common.ErrorDetail.FromString(dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b""))

def open_table(name, families, split_at):
    schema = common.TableSchema(name=name, families=[common.FamilySchema(name=family) for family in families])
    try:
        master.CreateTable(admin.CreateTableRequest(hello=hello, schema=schema, split_at=split_at), timeout=30)
    except grpc.RpcError as error:
        if refusal(error).WhichOneof("kind") != "already_exists":
            raise
    return master.DescribeTable(admin.DescribeTableRequest(hello=hello, name=name), timeout=10).schema.table

def place(table, row):
    """The region that holds `row`, and the address of its leader. If the master does not know it, any member does."""
    found = master.Locate(admin.LocateRequest(hello=hello, table=table, key=row, limit=1), timeout=10)
    group = found.groups[0]
    return found.regions[0], {m.server: m.address for m in group.members}.get(group.leader, group.members[0].address)

def call(method, table, row, body_for, **header):
    """Calls the leader of the region that holds `row`. A client with more than a few calls caches the map."""
    region, address = place(table, row)
    for wait_s in (0, 0.1, 0.5, 2, None):
        if address not in servers:
            servers[address] = data_pb2_grpc.DataStub(grpc.insecure_channel(address))
        header.update(table=table, region=region.region, epoch=region.epoch)
        about = data.RequestHeader(format=1, deadline_ms=5_000, client_id=client_id, **header)
        try:
            request = CALLS[method](hello=hello, header=about, body=body_for(region))
            return region, getattr(servers[address], method)(request, timeout=6)
        except grpc.RpcError as error:
            refused = refusal(error)
            if wait_s is None or refused.WhichOneof("kind") not in NOTHING_APPLIED:
                raise
            time.sleep(wait_s)
            region, address = place(table, row)
            address = refused.not_leader.address or address  # A refusal is newer than the master's map.
            for current in refused.stale_epoch.current:
                if current.start <= row and (not current.end or row < current.end):
                    region = current

def mutation(row, **what):
    """A mutation with its own operation number: however often it is sent, it is applied once."""
    first_try_ms = clock_ms + time.monotonic_ns() // 10**6
    return data.RowMutation(row=row, operation=next(operations), first_try_ms=first_try_ms, **what)

def send(table, row):
    body = data.Mutate(rows=[row])
    _, reply = call("Mutate", table, row.row, lambda _: body, lowest_unsettled=row.operation)
    for failed in reply.errors:
        raise RuntimeError(failed.error.message)
    return reply.results[0] if reply.results else data.RowResult()

def get(table, row):
    _, reply = call("Get", table, row, lambda _: data.Get(rows=[row], cells_as=data.MESSAGES))
    return {cell.qualifier: cell.value for found in reply.messages for cell in found.cells}

def scan(table, start, end, expression):
    """Rows of [start, end) over all regions, as (row, cells by qualifier)."""
    asked, resume, within, cells = start, b"", None, {}
    def body(region):
        nonlocal asked, resume, within, cells
        if within != (region.region, region.epoch):  # A resume token is valid for one region at one epoch.
            asked, resume, within, cells = start, b"", (region.region, region.epoch), {}
        what = {"projection": data.Projection(filter=expression), "cells_as": data.MESSAGES, "block_bytes": 256}
        return data.Scan(start=asked, end=end, resume=resume, **what)
    while start < end:
        region, block = call("ScanOnce", table, start, body)
        resume, cells = block.resume, {} if block.row_restarted else cells
        for at, found in enumerate(block.messages, 1):
            cells |= {cell.qualifier: cell.value for cell in found.cells}
            if not (block.row_continues and at == len(block.messages)):
                yield found.row, cells
                start, cells = found.row + b"\0", {}
        if block.done:
            start = region.end or end

def put(qualifier, value):
    return data.Cell(family="d", qualifier=qualifier, timestamp=2**63 - 1, value=value)  # The server's time.

def i32(number):
    return struct.pack(">i", number)

users = open_table("example.python", ["d"], split_at=[b"user-4", b"user-7"])
for number in range(10):
    cells = [put(b"age", i32(20 + number)), put(b"name", b"User %d" % number)]
    send(users, mutation(b"user-%d" % number, messages=cells))

visit = mutation(b"user-3", read_modify_writes=[data.ReadModifyWrite(family="d", qualifier=b"visits", increment=5)], returns=data.NEW)
for attempt in ("first try", "retry"):  # As after a lost reply: applied once, with the same answer.
    print(attempt, "visits:", *struct.unpack(">q", send(users, visit).messages[0].value))

for age in (20, 30):
    younger = data.ColumnTest(family="d", qualifier=b"age", comparison=data.LESS, values=[i32(age)], read_as="i32")
    marked = mutation(b"user-3", condition=data.Condition(column=younger), messages=[put(b"group", b"under %d" % age)])
    print("under", age, "held:", not send(users, marked).condition_failed)
print("user-3", *(b"%s=%s" % cell for cell in sorted(get(users, b"user-3").items())))

for row, cells in scan(users, b"user-2", b"user-9", "i32(d:age) >= 23"):
    print(row.decode(), cells[b"name"].decode())
