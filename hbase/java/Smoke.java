import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterBase;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter;
import org.apache.hadoop.hbase.filter.FuzzyRowFilter;
import org.apache.hadoop.hbase.filter.InclusiveStopFilter;
import org.apache.hadoop.hbase.filter.KeyOnlyFilter;
import org.apache.hadoop.hbase.filter.MultiRowRangeFilter;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;
import org.apache.hadoop.hbase.filter.RegexStringComparator;
import org.apache.hadoop.hbase.filter.RowFilter;
import org.apache.hadoop.hbase.filter.SingleColumnValueFilter;
import org.apache.hadoop.hbase.filter.SubstringComparator;
import org.apache.hadoop.hbase.filter.ValueFilter;
import org.apache.hadoop.hbase.filter.WhileMatchFilter;
import org.apache.hadoop.hbase.util.Pair;

/** What a first program does with HBase's unmodified client. Every step checks what it reads. */
public final class Smoke {
  private static final byte[] F = bytes("f");
  private static final int ROWS = 1_000;

  public static void main(String[] args) throws Exception {
    for (String registry : args) {
      Configuration conf = HBaseConfiguration.create();
      conf.setInt("hbase.client.retries.number", 6);
      if (registry.startsWith("rpc:")) {
        conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
        conf.set("hbase.client.bootstrap.servers", registry.substring(4));
      } else {
        conf.set("hbase.zookeeper.quorum", registry.substring(3));
      }
      try (Connection connection = ConnectionFactory.createConnection(conf)) {
        run(connection, TableName.valueOf("smoke_" + registry.substring(0, 2) + "_" + ProcessHandle.current().pid()));
      }
      System.out.println("ok " + registry);
    }
  }

  private static void run(Connection connection, TableName name) throws Exception {
    try (Admin admin = connection.getAdmin()) {
      check(!admin.tableExists(name), "the table is not there yet");
      byte[][] splits = {bytes("row-0250"), bytes("row-0500"), bytes("row-0750")};
      admin.createTable(TableDescriptorBuilder.newBuilder(name)
          .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(3).build()).build(), splits);
      check(admin.tableExists(name) && admin.isTableEnabled(name), "the table is there");
      check(Arrays.asList(admin.listTableNames()).contains(name), "the table is listed");
      check(admin.getDescriptor(name).getColumnFamily(F).getMaxVersions() == 3, "versions are described");
      check(connection.getRegionLocator(name).getAllRegionLocations().size() == 4, "four regions are located");
      try (Table table = connection.getTable(name)) {
        write(connection, name);
        read(table);
        filter(table);
        change(table);
        refuse(table);
      }
      admin.disableTable(name);
      check(admin.isTableDisabled(name), "the table is disabled");
      admin.enableTable(name);
      admin.disableTable(name);
      admin.deleteTable(name);
      check(!admin.tableExists(name), "the table is gone");
    }
  }

  private static void write(Connection connection, TableName name) throws Exception {
    try (BufferedMutator mutator = connection.getBufferedMutator(name)) {
      for (int i = 0; i < ROWS; i++) {
        mutator.mutate(new Put(row(i)).addColumn(F, bytes("n"), bytes("value-" + i)));
      }
    }
  }

  private static void read(Table table) throws Exception {
    check(text(table.get(new Get(row(7))).getValue(F, bytes("n"))).equals("value-7"), "a get");
    check(table.get(new Get(bytes("nothing"))).isEmpty(), "a get of nothing");
    check(table.exists(new Get(row(7))) && !table.exists(new Get(bytes("nothing"))), "exists");
    List<Get> gets = new ArrayList<>();
    for (int i = 0; i < ROWS; i += 10) {
      gets.add(new Get(row(i)));
    }
    Result[] results = table.get(gets);
    for (int i = 0; i < results.length; i++) {
      check(text(results[i].getValue(F, bytes("n"))).equals("value-" + i * 10), "a get of many");
    }
    check(count(table, new Scan()) == ROWS, "a scan of all regions");
    check(count(table, new Scan().setCaching(7)) == ROWS, "a scan in small parts");
    check(count(table, new Scan().setReversed(true)) == ROWS, "a scan down");
    check(count(table, new Scan().withStartRow(row(240)).withStopRow(row(260))) == 20, "a scan over a boundary");
    check(count(table, new Scan().withStartRow(row(240), false).withStopRow(row(260), true)) == 20, "other bounds");
    check(count(table, new Scan().setLimit(13)) == 13, "a limit");
  }

  private static void change(Table table) throws Exception {
    byte[] row = row(1);
    long now = System.currentTimeMillis();
    table.put(new Put(row).addColumn(F, bytes("v"), now - 20, bytes("one")).addColumn(F, bytes("v"), now - 10, bytes("two")));
    Result versions = table.get(new Get(row).addColumn(F, bytes("v")).readVersions(2));
    check(versions.size() == 2 && text(versions.value()).equals("two"), "versions");
    check(table.incrementColumnValue(row, F, bytes("c"), 5) == 5, "an increment");
    check(table.incrementColumnValue(row, F, bytes("c"), -2) == 3, "another increment");
    Result appended = table.append(new Append(row).addColumn(F, bytes("n"), bytes("+")));
    check(text(appended.getValue(F, bytes("n"))).equals("value-1+"), "an append");
    CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(row).ifEquals(F, bytes("n"), bytes("value-1+"));
    check(table.checkAndMutate(builder.build(new Put(row).addColumn(F, bytes("n"), bytes("x")))).isSuccess(), "a check");
    check(!table.checkAndMutate(builder.build(new Put(row).addColumn(F, bytes("n"), bytes("y")))).isSuccess(), "a failed check");
    RowMutations both = new RowMutations(row);
    both.add(new Put(row).addColumn(F, bytes("b"), bytes("b")));
    both.add(new Delete(row).addColumns(F, bytes("n")));
    table.mutateRow(both);
    Result changed = table.get(new Get(row));
    check(changed.containsColumn(F, bytes("b")) && !changed.containsColumn(F, bytes("n")), "several mutations of a row");
    table.delete(new Delete(row));
    check(table.get(new Get(row)).isEmpty(), "a deleted row");
    List<Delete> deletes = new ArrayList<>();
    for (int i = 900; i < ROWS; i++) {
      deletes.add(new Delete(row(i)));
    }
    table.delete(deletes);
    check(count(table, new Scan()) == 899, "deleted rows");
  }

  private static void refuse(Table table) throws Exception {
    try {
      table.put(new Put(row(2)).addColumn(bytes("other"), bytes("n"), bytes("v")));
      throw new AssertionError("an unknown family was taken");
    } catch (DoNotRetryIOException | org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException expected) {
      check(expected.toString().contains("NoSuchColumnFamily"), "an unknown family: " + expected);
    }
    refuses(table, new ParseOnly(), "unknown here");
    refuses(table, new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator("a(?=b)")), "look-aheads");
    check(count(table, new Scan()) == 899, "other calls go on");
  }

  private static void refuses(Table table, Filter filter, String why) throws Exception {
    try (ResultScanner scanner = table.getScanner(new Scan().setFilter(filter))) {
      scanner.next();
      throw new AssertionError("a filter was ignored: " + filter);
    } catch (DoNotRetryIOException expected) {
      check(expected.toString().contains(why), "a filter: " + expected);
    }
  }

  /** A filter that servers do not know. */
  public static final class ParseOnly extends FilterBase {
    @Override
    public ReturnCode filterCell(Cell cell) {
      return ReturnCode.INCLUDE;
    }

    @Override
    public byte[] toByteArray() {
      return new byte[0];
    }
  }

  /** Rows 0 to 999 are in four regions of 250; each has the column n with value-N. */
  private static void filter(Table table) throws Exception {
    check(filtered(table, new PageFilter(10)) == 40, "a page of each region");
    check(count(table, new Scan().setFilter(new PageFilter(10)).setCaching(10)) == 40, "pages as large as an answer");
    check(count(table, new Scan().setFilter(new PageFilter(10)).setCaching(3)) == 40, "pages in parts");
    check(count(table, new Scan().setFilter(new PageFilter(10)).setLimit(10)) == 10, "a page and a limit");
    check(count(table, new Scan().setFilter(new PageFilter(10)).setReversed(true)) == 40, "pages down");
    check(filtered(table, new WhileMatchFilter(new PageFilter(25))) == 100, "pages while they match");
    check(filtered(table, new PageFilter(0)) == 0, "an empty page");
    check(filtered(table, new PrefixFilter(bytes("row-03"))) == 100, "a prefix");
    check(filtered(table, new InclusiveStopFilter(row(299))) == 300, "up to a row");
    FilterList keys = new FilterList(new FirstKeyOnlyFilter(), new KeyOnlyFilter());
    try (ResultScanner scanner = table.getScanner(new Scan().setFilter(keys))) {
      int rows = 0;
      for (Result result : scanner) {
        check(result.size() == 1 && result.value().length == 0, "one key of each row");
        rows++;
      }
      check(rows == ROWS, "the keys of all rows");
    }
    SingleColumnValueFilter value =
        new SingleColumnValueFilter(F, bytes("n"), CompareOperator.EQUAL, new RegexStringComparator("^value-\\d*7$"));
    value.setFilterIfMissing(true);
    check(filtered(table, value) == 100, "the value of a column");
    check(filtered(table, new FilterList(value, new PageFilter(5))) == 20, "a page of such rows");
    FilterList either = new FilterList(FilterList.Operator.MUST_PASS_ONE, new PrefixFilter(bytes("row-000")),
        new RowFilter(CompareOperator.EQUAL, new SubstringComparator("99")));
    check(filtered(table, either) == 10 + 19, "one of two");
    check(filtered(table, new MultiRowRangeFilter(Arrays.asList(new MultiRowRangeFilter.RowRange(row(10), true, row(12), true),
        new MultiRowRangeFilter.RowRange(row(600), false, row(610), false)))) == 3 + 9, "ranges of rows");
    byte[] open = {0, 0, 0, 0, 1, 1, 0, 0};
    check(filtered(table, new FuzzyRowFilter(List.of(new Pair<>(bytes("row-??42"), open)))) == 10, "a fuzzy key");
    check(filtered(table, new WhileMatchFilter(new RowFilter(CompareOperator.NOT_EQUAL, new BinaryComparator(row(5))))) == 5 + 750,
        "while rows match, in each region");
    Get get = new Get(row(7));
    check(table.get(get.setFilter(new ValueFilter(CompareOperator.EQUAL, new BinaryComparator(bytes("value-8"))))).isEmpty(),
        "a get of another value");
    check(table.exists(get.setFilter(new ColumnPrefixFilter(bytes("n")))), "a get of a prefix");
    check(count(table, new Scan().setMaxResultsPerColumnFamily(1).setRowOffsetPerColumnFamily(1)) == 0, "cells per family");
  }

  private static int filtered(Table table, Filter filter) throws Exception {
    return count(table, new Scan().setFilter(filter));
  }

  private static int count(Table table, Scan scan) throws Exception {
    int rows = 0;
    byte[] last = null;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        if (last != null) {
          int order = Arrays.compareUnsigned(last, result.getRow());
          check(scan.isReversed() ? order > 0 : order < 0, "rows are in order");
        }
        last = result.getRow();
        rows++;
      }
    }
    return rows;
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("does not hold: " + what);
    }
  }

  private static byte[] row(int i) {
    return bytes(String.format("row-%04d", i));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] value) {
    return value == null ? "nothing" : new String(value, StandardCharsets.UTF_8);
  }
}
