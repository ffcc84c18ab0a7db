import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.AsyncBufferedMutator;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTable;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.ScanResultConsumer;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.filter.PrefixFilter;

/**
 * A first program, with nothing that HBase's client 2.2 does not have: blocking, asynchronous and buffered calls over ZooKeeper.
 *
 * <p>Usage: {@code First QUORUM}.
 */
public final class First {
  private static final byte[] F = bytes("f");
  private static final byte[] Q = bytes("q");
  private static final int ROWS = 500;

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    conf.setInt("hbase.client.retries.number", 6);
    TableName name = TableName.valueOf("first_" + ProcessHandle.current().pid());
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      byte[][] splits = {bytes("row-0200"), bytes("row-0400")};
      admin.createTable(TableDescriptorBuilder.newBuilder(name)
          .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(3).build()).build(), splits);
      check(admin.tableExists(name), "the table is there");
      check(admin.getDescriptor(name).getColumnFamily(F).getMaxVersions() == 3, "it is described");
      check(connection.getRegionLocator(name).getAllRegionLocations().size() == 3, "its regions are located");
      buffered(connection, name);
      try (Table table = connection.getTable(name)) {
        blocking(table);
      }
      asynchronous(conf, name);
      admin.disableTable(name);
      admin.deleteTable(name);
      check(!admin.tableExists(name), "the table is gone");
    }
    System.out.println("ok " + org.apache.hadoop.hbase.util.VersionInfo.getVersion());
    // Threads of the registry may go on for a while.
    System.exit(0);
  }

  private static void buffered(Connection connection, TableName name) throws Exception {
    try (BufferedMutator mutator = connection.getBufferedMutator(name)) {
      for (int number = 0; number < ROWS; number++) {
        mutator.mutate(new Put(row(number)).addColumn(F, Q, bytes("value-" + number)));
      }
      mutator.flush();
      mutator.mutate(Arrays.asList(new Delete(row(1)), new Put(row(2)).addColumn(F, Q, bytes("again"))));
    }
  }

  private static void blocking(Table table) throws Exception {
    check(text(table.get(new Get(row(2))).getValue(F, Q)).equals("again"), "a get");
    check(!table.exists(new Get(row(1))), "a deleted row");
    List<Get> gets = new ArrayList<>();
    for (int number = 10; number < ROWS; number += 10) {
      gets.add(new Get(row(number)));
    }
    for (Result result : table.get(gets)) {
      check(text(result.getValue(F, Q)).equals("value-" + Integer.parseInt(text(result.getRow()).substring(4))), "gets");
    }
    check(count(table, new Scan()) == ROWS - 1, "a scan");
    check(count(table, new Scan().setCaching(7).setReversed(true)) == ROWS - 1, "a scan down in small parts");
    check(count(table, new Scan().setLimit(13)) == 13, "a limit");
    check(count(table, new Scan().withStartRow(row(190)).withStopRow(row(210))) == 20, "a scan over a boundary");
    FilterList filters = new FilterList(new PrefixFilter(bytes("row-01")), new PageFilter(25));
    check(count(table, new Scan().setFilter(filters)) == 25, "filters");
    byte[] row = row(7);
    check(table.incrementColumnValue(row, F, bytes("c"), 5) == 5, "an increment");
    check(number(table.increment(new Increment(row).addColumn(F, bytes("c"), -2)).value()) == 3, "another");
    check(text(table.append(new Append(row).addColumn(F, Q, bytes("+"))).getValue(F, Q)).equals("value-7+"), "an append");
    Put put = new Put(row).addColumn(F, Q, bytes("x"));
    check(table.checkAndMutate(row, F).qualifier(Q).ifEquals(bytes("value-7+")).thenPut(put), "a check");
    check(!table.checkAndMutate(row, F).qualifier(Q).ifEquals(bytes("value-7+")).thenPut(put), "a failed check");
    check(table.checkAndMutate(row, F).qualifier(bytes("d")).ifNotExists().thenPut(put), "a check of nothing");
    RowMutations both = new RowMutations(row);
    both.add(new Put(row).addColumn(F, bytes("b"), bytes("b")));
    both.add(new Delete(row).addColumns(F, Q));
    table.mutateRow(both);
    Result changed = table.get(new Get(row));
    check(changed.containsColumn(F, bytes("b")) && !changed.containsColumn(F, Q), "several mutations of a row");
    table.put(new Put(row).addColumn(F, Q, 10, bytes("hidden")));
    check(!table.exists(new Get(row).addColumn(F, Q)), "a put below a tombstone");
    byte[] versions = bytes("versions");
    table.put(new Put(row).addColumn(F, versions, 10, bytes("ten")));
    table.put(new Put(row).addColumn(F, versions, 20, bytes("twenty")));
    check(table.get(new Get(row).addColumn(F, versions).readVersions(2)).size() == 2, "versions");
    batches(table);
    check(text(table.get(new Get(row).addColumn(F, versions).setTimestamp(10)).value()).equals("ten"), "a version");
    Object[] results = new Object[3];
    table.batch(Arrays.asList(new Get(row(3)), new Put(row(4)).addColumn(F, Q, bytes("batch")), new Delete(row(5))), results);
    check(text(((Result) results[0]).getValue(F, Q)).equals("value-3") && results[1] instanceof Result, "a batch");
  }

  /** Rows of seven cells in results of three, and of one more row than fits the caching. */
  private static void batches(Table table) throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int number = 0; number < 4; number++) {
      Put put = new Put(bytes("wide-" + number));
      for (int cell = 0; cell < 7; cell++) {
        put.addColumn(F, bytes("w" + cell), bytes("w"));
      }
      puts.add(put);
    }
    table.put(puts);
    for (int caching : new int[] {1, 2, 100}) {
      StringBuilder sizes = new StringBuilder();
      Scan scan = new Scan().withStartRow(bytes("wide-")).withStopRow(bytes("wide.")).setBatch(3).setCaching(caching);
      try (ResultScanner scanner = table.getScanner(scan)) {
        for (Result result : scanner) {
          sizes.append(result.size());
        }
      }
      check(sizes.toString().equals("331331331331"), "batches of cells: " + sizes);
    }
    Scan six = new Scan().withStartRow(bytes("wide-")).withStopRow(bytes("wide.")).setBatch(7).setLimit(2);
    int results = 0;
    try (ResultScanner scanner = table.getScanner(six)) {
      for (Result result : scanner) {
        check(result.size() == 7, "a batch of a whole row");
        results++;
      }
    }
    check(results == 2, "a limit of rows in batches");
    for (Put put : puts) {
      table.delete(new Delete(put.getRow()));
    }
  }

  private static void asynchronous(Configuration conf, TableName name) throws Exception {
    try (AsyncConnection connection = ConnectionFactory.createAsyncConnection(conf).get(30, TimeUnit.SECONDS)) {
      check(connection.getAdmin().tableExists(name).get(30, TimeUnit.SECONDS), "an asynchronous administrator");
      check(connection.getRegionLocator(name).getAllRegionLocations().get(30, TimeUnit.SECONDS).size() == 3, "locations");
      AsyncTable<? super ScanResultConsumer> table = connection.getTable(name, java.util.concurrent.ForkJoinPool.commonPool());
      List<CompletableFuture<Void>> puts = new ArrayList<>();
      for (int number = 0; number < ROWS; number++) {
        puts.add(table.put(new Put(row(number)).addColumn(F, Q, bytes("async-" + number))));
      }
      CompletableFuture.allOf(puts.toArray(new CompletableFuture[0])).get(30, TimeUnit.SECONDS);
      List<Get> gets = new ArrayList<>();
      for (int number = 0; number < ROWS; number++) {
        gets.add(new Get(row(number)));
      }
      List<Result> results = table.getAll(gets).get(30, TimeUnit.SECONDS);
      for (int number = 0; number < ROWS; number++) {
        check(text(results.get(number).getValue(F, Q)).equals("async-" + number), "asynchronous gets");
      }
      check(table.scanAll(new Scan()).get(30, TimeUnit.SECONDS).size() == ROWS, "an asynchronous scan");
      check(table.incrementColumnValue(row(8), F, bytes("c"), 4).get(30, TimeUnit.SECONDS) == 4, "an increment");
      check(table.checkAndMutate(row(8), F).qualifier(Q).ifEquals(bytes("async-8"))
          .thenDelete(new Delete(row(8))).get(30, TimeUnit.SECONDS), "an asynchronous check");
      try (ResultScanner scanner = table.getScanner(new Scan().setReversed(true).setCaching(9))) {
        int rows = 0;
        for (Result result = scanner.next(); result != null; result = scanner.next()) {
          rows++;
        }
        check(rows == ROWS - 1, "a scanner over asynchronous calls");
      }
      try (AsyncBufferedMutator mutator = connection.getBufferedMutator(name)) {
        List<CompletableFuture<Void>> mutations = new ArrayList<>();
        for (int number = 0; number < ROWS; number++) {
          mutations.add(mutator.mutate(new Put(row(number)).addColumn(F, bytes("m"), bytes("m"))));
        }
        mutator.flush();
        CompletableFuture.allOf(mutations.toArray(new CompletableFuture[0])).get(30, TimeUnit.SECONDS);
      }
      check(table.scanAll(new Scan().addColumn(F, bytes("m"))).get(30, TimeUnit.SECONDS).size() == ROWS, "buffered puts");
    }
  }

  private static int count(Table table, Scan scan) throws Exception {
    int rows = 0;
    byte[] last = null;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        rows += last != null && Arrays.equals(last, result.getRow()) ? 0 : 1;
        last = result.getRow();
      }
    }
    return rows;
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError("does not hold: " + what);
    }
  }

  private static long number(byte[] value) {
    return java.nio.ByteBuffer.wrap(value).getLong();
  }

  private static byte[] row(int number) {
    return bytes(String.format("row-%04d", number));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] value) {
    return value == null ? "nothing" : new String(value, StandardCharsets.UTF_8);
  }
}
