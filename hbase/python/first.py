"""A first program with hbase-driver, which speaks HBase's protocol in Python. Every step checks what it reads.

Usage: first.py ZOOKEEPER
"""

import os
import sys

from hbasedriver.client.client import Client
from hbasedriver.filter.prefix_filter import PrefixFilter
from hbasedriver.hbase_constants import HConstants
from hbasedriver.operations.append import Append
from hbasedriver.operations.batch import BatchGet, BatchPut
from hbasedriver.operations.column_family_builder import ColumnFamilyDescriptorBuilder
from hbasedriver.operations.delete import Delete
from hbasedriver.operations.get import Get
from hbasedriver.operations.increment import CheckAndPut, Increment
from hbasedriver.operations.put import Put
from hbasedriver.operations.row_mutations import RowMutations
from hbasedriver.operations.scan import Scan
from hbasedriver.table_name import TableName

ROWS = 300
TABLE = b"driver_%d" % os.getpid()


def row(number):
    return b"row-%04d" % number


def check(holds, what):
    if not holds:
        raise AssertionError("does not hold: " + what)


def count(table, scan):
    keys = [found.rowkey for found in table.scan(scan)]
    check(keys == sorted(set(keys)), "rows are in order")
    return len(keys)


def data(table):
    batch = BatchPut()
    for number in range(ROWS):
        batch.add_put(Put(row(number)).add_column(b"f", b"q", b"value-%d" % number))
    check(all(table.batch_put(batch)), "a batch of puts")
    check(table.get(Get(row(7))).get(b"f", b"q") == b"value-7", "a get")
    check(table.get(Get(b"absent")) is None, "a get of nothing")
    gets = BatchGet([row(number) for number in range(0, ROWS, 10)])
    gets.add_column(b"f", b"q")
    found = table.batch_get(gets)
    check(all(found[row(number)].get(b"f", b"q") == b"value-%d" % number for number in range(0, ROWS, 10)), "a batch of gets")
    check(count(table, Scan()) == ROWS, "a scan")
    check(count(table, Scan().with_start_row(row(90)).with_end_row(row(120), False)) == 30, "a part of the rows")
    check(count(table, Scan().set_filter(PrefixFilter(b"row-01"))) == 100, "a filter")
    table.put(Put(row(1)).add_column(b"f", b"q", b"again"))
    check(table.get(Get(row(1))).get(b"f", b"q") == b"again", "a put")
    check([table.increment(Increment(row(2)).add_column(b"f", b"c", 3)) for _ in range(3)] == [3, 6, 9], "increments")
    appended = table.append(Append(row(3)).add_column(b"f", b"q", b"+"))
    check(appended.get(b"f", b"q") == b"value-3+", "an append")
    condition = CheckAndPut(row(4))
    condition.set_check(b"f", b"q", b"value-4")
    condition.set_put(Put(row(4)).add_column(b"f", b"q", b"new"))
    check(table.check_and_put(condition), "a condition")
    check(not table.check_and_put(condition), "a condition that does not hold")
    both = RowMutations(row(5))
    both.add(Put(row(5)).add_column(b"f", b"b", b"b"))
    both.add(Delete(row(5)).add_column(b"f", b"q"))
    table.mutate_row(both)
    changed = table.get(Get(row(5)))
    check(changed.get(b"f", b"b") == b"b" and changed.get(b"f", b"q") is None, "several mutations of a row")
    table.delete(Delete(row(6)))
    check(table.get(Get(row(6))) is None and count(table, Scan()) == ROWS - 1, "a deleted row")


def main():
    with Client({HConstants.ZOOKEEPER_QUORUM: sys.argv[1]}) as client:
        admin = client.get_admin()
        name = TableName.value_of(b"", TABLE)
        family = ColumnFamilyDescriptorBuilder(b"f").set_max_versions(3).build()
        # All rows are in one region: the driver's scans end with a region, and it looks for a row at the start of a region in
        # the region before.
        admin.create_table(name, [family], split_keys=[b"s"])
        check(admin.table_exists(name), "the table is there")
        with client.get_table(b"default", TABLE) as table:
            data(table)
        with client.get_buffered_mutator(b"default", TABLE) as mutator:
            for number in range(ROWS):
                mutator.mutate(Put(row(number)).add_column(b"f", b"m", b"m"))
        with client.get_table(b"default", TABLE) as table:
            # The driver's scans of single columns fail in the driver with the protobuf of today.
            gets = BatchGet([row(number) for number in range(ROWS)])
            gets.add_column(b"f", b"m")
            found = table.batch_get(gets)
            check(all(found[row(number)].get(b"f", b"m") == b"m" for number in range(ROWS)), "buffered puts")
        admin.disable_table(name)
        admin.delete_table(name)
        check(not admin.table_exists(name), "the table is gone")
    print("ok hbase-driver")


main()
