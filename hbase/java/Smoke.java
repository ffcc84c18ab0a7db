import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
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
import org.apache.hadoop.hbase.filter.PrefixFilter;

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
    try (ResultScanner scanner = table.getScanner(new Scan().setFilter(new PrefixFilter(bytes("row"))))) {
      scanner.next();
      throw new AssertionError("a filter was ignored");
    } catch (DoNotRetryIOException expected) {
      check(expected.toString().contains("filters are not supported yet"), "a filter: " + expected);
    }
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
