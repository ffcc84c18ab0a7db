import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.ClusterMetrics;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.client.metrics.ScanMetrics;
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
import org.apache.hadoop.hbase.io.TimeRange;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;
import org.apache.hadoop.hbase.quotas.QuotaSettingsFactory;
import org.apache.hadoop.hbase.quotas.ThrottleType;

/** What a first program does with HBase's unmodified client. Every step checks what it reads. */
public final class Smoke {
  private static final byte[] F = bytes("f");
  private static final int ROWS = 1_000;

  public static void main(String[] args) throws Exception {
    for (String argument : args) {
      // REGISTRY or REGISTRY/CODEC: how the client finds the cluster, and how cell blocks are compressed.
      String[] parts = argument.split("/");
      String registry = parts[0];
      Configuration conf = HBaseConfiguration.create();
      conf.setInt("hbase.client.retries.number", 6);
      if (registry.startsWith("rpc:")) {
        conf.set("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry");
        conf.set("hbase.client.bootstrap.servers", registry.substring(4));
      } else if (registry.startsWith("zk:")) {
        conf.set("hbase.zookeeper.quorum", registry.substring(3));
      } else {
        check(conf.get("hbase.client.bootstrap.servers") != null, "hbase-site.xml is read");
      }
      if (parts.length > 1) {
        conf.set("hbase.client.rpc.compressor", parts[1]);
      }
      try (Connection connection = ConnectionFactory.createConnection(conf)) {
        run(connection, TableName.valueOf("smoke_" + registry.substring(0, 2) + "_" + ProcessHandle.current().pid()));
      }
      System.out.println("ok " + argument);
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
        conditions(table);
        refuse(table);
      }
      administer(admin, name);
      regions(connection, admin, name);
      status(admin, name);
      namespaces(admin);
      systemTables(connection, admin, name);
      features(admin);
      admin.disableTable(name);
      check(admin.isTableDisabled(name), "the table is disabled");
      admin.enableTable(name);
      admin.disableTable(name);
      truncate(connection, admin, name);
      admin.deleteTable(name);
      check(!admin.tableExists(name), "the table is gone");
    }
  }

  private static void administer(Admin admin, TableName name) throws Exception {
    byte[] g = bytes("g");
    admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.newBuilder(g).setMaxVersions(2).build());
    check(admin.getDescriptor(name).getColumnFamily(g).getMaxVersions() == 2, "a family is added");
    admin.modifyColumnFamily(name, ColumnFamilyDescriptorBuilder.newBuilder(g).setMaxVersions(5).setTimeToLive(60).build());
    check(admin.getDescriptor(name).getColumnFamily(g).getTimeToLive() == 60, "a family is changed");
    refused("InvalidFamilyOperationException", () -> admin.addColumnFamily(name, ColumnFamilyDescriptorBuilder.of(g)));
    TableDescriptor whole = TableDescriptorBuilder.newBuilder(admin.getDescriptor(name)).setMaxFileSize(1L << 30)
        .setValue("OWNER", "smoke").removeColumnFamily(g).build();
    admin.modifyTable(whole);
    TableDescriptor read = admin.getDescriptor(name);
    check(read.getMaxFileSize() == 1L << 30 && read.getValue("OWNER").equals("smoke"), "a table is changed");
    check(read.getColumnFamilyCount() == 1 && read.getColumnFamily(F).getMaxVersions() == 3, "a family is left out");
    refused("InvalidFamilyOperationException", () -> admin.deleteColumnFamily(name, g));
    refused("InvalidFamilyOperationException", () -> admin.deleteColumnFamily(name, F));
    refused("FailedSanityCheckException", () -> admin.modifyTable(TableDescriptorBuilder.newBuilder(read)
        .setRegionReplication(3).build()));
    check(admin.listTableDescriptors(Pattern.compile("smoke_.*"), false).size() >= 1, "tables are described by pattern");
    check(Arrays.asList(admin.listTableNames(Pattern.compile(".*"), true)).contains(TableName.META_TABLE_NAME), "meta is listed");
    check(admin.getDescriptor(TableName.META_TABLE_NAME).hasColumnFamily(bytes("info")), "meta is described");
    check(admin.listTableDescriptorsByState(true).stream().anyMatch(table -> table.getTableName().equals(name)), "by state");
  }

  private static void systemTables(Connection connection, Admin admin, TableName name) throws Exception {
    TableName namespaces = TableName.valueOf("hbase", "namespace");
    check(admin.tableExists(namespaces) && admin.getDescriptor(namespaces).hasColumnFamily(bytes("info")), "it is described");
    byte[] of = bytes(name.getNameAsString());
    try (Table meta = connection.getTable(TableName.META_TABLE_NAME); Table names = connection.getTable(namespaces)) {
      check(names.get(new Get(bytes("default"))).containsColumn(bytes("info"), bytes("d")), "a namespace has a row");
      check(count(names, new Scan()) >= 2, "namespaces are scanned");
      long regions = admin.getRegions(name).size();
      Scan ofTable = new Scan().setFilter(new PrefixFilter(Bytes.add(of, bytes(","))));
      check(count(meta, ofTable) == regions, "a filter chooses the regions of a table");
      check(count(meta, new Scan(ofTable).setCaching(1)) == regions, "a filter of several calls");
      check(count(meta, new Scan(ofTable).setReversed(true)) == regions, "a filter downwards");
      check(count(meta, new Scan().setFilter(new PageFilter(2))) == 2, "pages are counted");
      Scan byState = new Scan().addFamily(bytes("table"));
      check(count(meta, new Scan(byState).setFilter(new RowFilter(CompareOperator.EQUAL, new BinaryComparator(of)))) == 1,
          "a filter chooses the state of a table");
      try (ResultScanner first = meta.getScanner(new Scan(ofTable).setMaxResultsPerColumnFamily(1).setRowOffsetPerColumnFamily(1))) {
        check(first.next().size() == 1, "cells are limited");
      }
      Result[] both = meta.get(List.of(new Get(of).addFamily(bytes("table")), new Get(bytes("absent"))));
      check(both[0].size() == 1 && both[1].isEmpty(), "rows are read together");
      refused("take no writes", () -> meta.put(new Put(of).addColumn(bytes("info"), F, F)));
    }
  }

  private static void regions(Connection connection, Admin admin, TableName name) throws Exception {
    admin.flush(name);
    List<RegionInfo> regions = admin.getRegions(name);
    check(regions.size() == 4, "regions are listed");
    admin.flushRegion(regions.get(0).getRegionName());
    admin.compact(name);
    admin.majorCompact(name);
    until("the compaction ends", () -> admin.getCompactionState(name) == CompactionState.NONE);
    RegionLocator locator = connection.getRegionLocator(name);
    ServerName server = locator.getRegionLocation(regions.get(0).getStartKey(), true).getServerName();
    check(admin.getRegions(server).contains(regions.get(0)), "a server lists its regions");
    check(admin.getRegionMetrics(server, name).stream().anyMatch(load -> load.getStoreCount() == 1), "families are counted");

    admin.split(name, bytes("row-0600"));
    until("the split shows", () -> locator.getAllRegionLocations().size() == 5);
    RegionInfo left = locator.getRegionLocation(bytes("row-0550"), true).getRegion();
    RegionInfo right = locator.getRegionLocation(bytes("row-0650"), true).getRegion();
    check(text(right.getStartKey()).equals("row-0600"), "the daughter begins where the split was asked for");
    admin.mergeRegionsAsync(new byte[][] {left.getEncodedNameAsBytes(), right.getEncodedNameAsBytes()}, false).get();
    until("the merge shows", () -> locator.getAllRegionLocations().size() == 4);
    List<RegionInfo> now = admin.getRegions(name);
    byte[][] apart = {now.get(0).getEncodedNameAsBytes(), now.get(2).getEncodedNameAsBytes()};
    refused("MergeRegionException", () -> admin.mergeRegionsAsync(apart, false).get());
    try (Table table = connection.getTable(name)) {
      check(count(table, new Scan()) == 899, "nothing is lost by splits and merges");
    }
    move(connection, admin, name);
  }

  /** To another server, and to the one that it is on. */
  private static void move(Connection connection, Admin admin, TableName name) throws Exception {
    RegionLocator locator = connection.getRegionLocator(name);
    HRegionLocation before = locator.getRegionLocation(bytes("row-0100"), true);
    admin.move(before.getRegion().getEncodedNameAsBytes(), before.getServerName());
    for (ServerName other : admin.getRegionServers()) {
      if (other.equals(before.getServerName())) {
        continue;
      }
      admin.move(before.getRegion().getEncodedNameAsBytes(), other);
      until("the move shows", () -> locator.getRegionLocation(bytes("row-0100"), true).getServerName().equals(other));
      break;
    }
    try (Table table = connection.getTable(name)) {
      check(!table.get(new Get(row(100))).isEmpty(), "a moved region is read");
    }
    check(admin.getRegionServers().size() == 1 || !locator.getRegionLocation(bytes("row-0100"), true).getServerName()
        .equals(before.getServerName()), "a region is moved if there is another server");
  }

  private static void status(Admin admin, TableName name) throws Exception {
    ClusterMetrics metrics = admin.getClusterMetrics();
    check(metrics.getHBaseVersion().startsWith("2."), "a version");
    check(metrics.getMasterName() != null && metrics.getMasterName().getPort() > 0, "a master");
    check(metrics.getClusterId() != null && metrics.getBalancerOn() != null, "an id and a balancer");
    check(!metrics.getLiveServerMetrics().isEmpty() && metrics.getDeadServerNames().isEmpty(), "servers live");
    check(metrics.getRegionStatesInTransition().isEmpty(), "no region is in transition");
    check(metrics.getTableRegionStatesCount().get(name).getOpenRegions() == 4, "regions of the table are open");
    until("rows are counted", () -> {
      long read = 0;
      for (ServerMetrics server : admin.getClusterMetrics().getLiveServerMetrics().values()) {
        for (RegionMetrics region : server.getRegionMetrics().values()) {
          read += region.getNameAsString().startsWith(name.getNameAsString() + ",") ? region.getReadRequestCount() : 0;
        }
      }
      return read > 0;
    });
    for (ServerName server : admin.getRegionServers()) {
      check(metrics.getLiveServerMetrics().containsKey(server), "servers have one name");
      admin.updateConfiguration(server);
    }
    check(admin.getMaster().equals(metrics.getMasterName()), "the master has one name");
    check(admin.getBackupMasters().size() == metrics.getBackupMasterNames().size(), "backup masters");
  }

  private static void namespaces(Admin admin) throws Exception {
    String name = "ns_" + System.nanoTime();
    admin.createNamespace(NamespaceDescriptor.create(name).build());
    check(Arrays.asList(admin.listNamespaces()).containsAll(Arrays.asList("default", "hbase", name)), "namespaces are listed");
    refused("NamespaceExistException", () -> admin.createNamespace(NamespaceDescriptor.create(name).build()));
    TableName table = TableName.valueOf(name, "t");
    admin.createTable(TableDescriptorBuilder.newBuilder(table).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build());
    check(admin.listTableNamesByNamespace(name).length == 1, "tables of a namespace are listed");
    check(admin.listTableDescriptorsByNamespace(bytes(name)).size() == 1, "tables of a namespace are described");
    refused("drop them first", () -> admin.deleteNamespace(name));
    admin.disableTable(table);
    admin.deleteTable(table);
    check(admin.getNamespaceDescriptor(name).getName().equals(name), "a namespace is described");
    admin.modifyNamespace(NamespaceDescriptor.create(name).build());
    admin.modifyNamespace(NamespaceDescriptor.create(name).addConfiguration("owner", "smoke").build());
    check("smoke".equals(admin.getNamespaceDescriptor(name).getConfigurationValue("owner")), "a property is kept");
    refused("quota support disabled", () -> admin.modifyNamespace(NamespaceDescriptor.create(name)
        .addConfiguration("hbase.namespace.quota.maxtables", "5").build()));
    admin.deleteNamespace(name);
    refused("NamespaceNotFoundException", () -> admin.getNamespaceDescriptor(name));
    refused("NamespaceNotFoundException", () -> admin.deleteNamespace(name));
    refused("is reserved", () -> admin.deleteNamespace("default"));
  }

  /** What is always on, always off or not there. */
  private static void features(Admin admin) throws Exception {
    boolean balances = admin.balancerSwitch(false, true);
    check(!admin.isBalancerEnabled() && !admin.balancerSwitch(balances, true), "the balancer is switched");
    admin.balance();
    check(admin.isCatalogJanitorEnabled() && admin.isSplitEnabled() && admin.isMergeEnabled(), "what is always on");
    check(!admin.isNormalizerEnabled() && !admin.isSnapshotCleanupEnabled() && !admin.isMasterInMaintenanceMode(), "off");
    check(admin.listSnapshots().isEmpty() && admin.listReplicationPeers().isEmpty(), "what there is none of");
    check(admin.listDecommissionedRegionServers().isEmpty(), "no server is decommissioned");
    check(admin.getProcedures().contains("CreateTableProcedure") && admin.getLocks().equals("[]"), "procedures are listed");
    check(admin.getSecurityCapabilities().size() == 1, "capabilities");
    refused("snapshots are not supported", () -> admin.snapshot("s", TableName.valueOf("t")));
    refused("quota support disabled", () -> admin.setQuota(
        QuotaSettingsFactory.throttleUser("u", ThrottleType.REQUEST_NUMBER, 1, TimeUnit.SECONDS)));
    refused("ReplicationPeerNotFoundException", () -> admin.getReplicationPeerConfig("p"));
    refused("always on", () -> admin.catalogJanitorSwitch(false));
  }

  private static void truncate(Connection connection, Admin admin, TableName name) throws Exception {
    admin.truncateTable(name, true);
    check(admin.isTableEnabled(name), "a truncated table is enabled");
    check(connection.getRegionLocator(name).getAllRegionLocations().size() == 4, "a truncated table keeps its splits");
    try (Table table = connection.getTable(name)) {
      check(count(table, new Scan()) == 0, "a truncated table is empty");
    }
    refused("TableNotDisabledException", () -> admin.truncateTable(name, false));
    admin.disableTable(name);
    admin.truncateTable(name, false);
    check(connection.getRegionLocator(name).getAllRegionLocations().size() == 1, "a truncated table has one region");
    admin.disableTable(name);
  }

  private interface Step {
    void run() throws Exception;
  }

  private interface Condition {
    boolean holds() throws Exception;
  }

  /** The step fails with this text in its exception, its class included. */
  private static void refused(String text, Step step) throws Exception {
    try {
      step.run();
    } catch (Exception expected) {
      for (Throwable cause = expected; cause != null; cause = cause.getCause()) {
        if (cause.toString().contains(text)) {
          return;
        }
      }
      throw new AssertionError("expected " + text, expected);
    }
    throw new AssertionError("not refused: " + text);
  }

  private static void until(String what, Condition condition) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (!condition.holds()) {
      check(System.nanoTime() < end, what);
      Thread.sleep(20);
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

  /** Conditions on more than one value, and mutations of a row in their order. */
  private static void conditions(Table table) throws Exception {
    byte[] row = row(2);
    Put x = new Put(row).addColumn(F, bytes("x"), bytes("x"));
    check(table.checkAndMutate(CheckAndMutate.newBuilder(row)
        .ifMatches(new SingleColumnValueFilter(F, bytes("n"), CompareOperator.EQUAL, bytes("value-2"))).build(x)).isSuccess(), "a filter holds");
    check(!table.checkAndMutate(CheckAndMutate.newBuilder(row)
        .ifMatches(new ValueFilter(CompareOperator.EQUAL, new SubstringComparator("nothing"))).build(x)).isSuccess(), "a filter does not hold");
    check(!table.checkAndMutate(row, F).qualifier(bytes("n")).timeRange(TimeRange.until(1))
        .ifEquals(bytes("value-2")).thenPut(x), "a condition of a time");
    check(table.checkAndMutate(row, new PrefixFilter(row)).timeRange(TimeRange.from(1)).thenPut(x), "a filter of a time");
    check(!table.checkAndMutate(row(5000), new PrefixFilter(row(5000))).thenPut(new Put(row(5000)).addColumn(F, F, F)), "no row");

    long later = System.currentTimeMillis() + 60_000;
    table.put(new Put(row).addColumn(F, bytes("late"), later, bytes("old")));
    check(table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(F, bytes("late"), bytes("old"))
        .build(new Put(row).addColumn(F, bytes("late"), bytes("new")))).isSuccess(), "a late cell is tested");
    check(text(table.get(new Get(row)).getValue(F, bytes("late"))).equals("new"), "what is written is not older than what was tested");

    Result counted = table.mutateRow(new RowMutations(row).add(Arrays.asList(
        new Increment(row).addColumn(F, bytes("i"), 2), new Put(row).addColumn(F, bytes("p"), bytes("p")),
        new Append(row).addColumn(F, bytes("a"), bytes("+")))));
    check(Bytes.toLong(counted.getValue(F, bytes("i"))) == 2 && text(counted.getValue(F, bytes("a"))).equals("+"), "what was merged");
    check(counted.size() == 2, "what was put is not returned");
    counted = table.mutateRow(new RowMutations(row).add(Arrays.asList(
        new Increment(row).addColumn(F, bytes("i"), 5), new Delete(row).addColumns(F, bytes("p")))));
    check(Bytes.toLong(counted.getValue(F, bytes("i"))) == 7, "an increment of several mutations");
    Increment old = new Increment(row).addColumn(F, bytes("i"), 1).setTimeRange(0, 1);
    check(Bytes.toLong(table.increment(old).getValue(F, bytes("i"))) == 1, "an increment of no value of that time");
    CheckAndMutateResult both = table.checkAndMutate(CheckAndMutate.newBuilder(row).ifEquals(F, bytes("a"), bytes("+"))
        .build(new RowMutations(row).add(Arrays.asList(new Increment(row).addColumn(F, bytes("i"), 1), x))));
    check(both.isSuccess() && Bytes.toLong(both.getResult().getValue(F, bytes("i"))) == 2, "a condition of several mutations");
    byte[] big = new byte[2 << 20];
    check(table.append(new Append(row).addColumn(F, bytes("big"), big)).getValue(F, bytes("big")).length == big.length, "a big result");
    table.delete(new Delete(row).addColumns(F, bytes("big")));
  }

  private static void refuse(Table table) throws Exception {
    try {
      table.put(new Put(row(2)).addColumn(bytes("other"), bytes("n"), bytes("v")));
      throw new AssertionError("an unknown family was taken");
    } catch (DoNotRetryIOException | org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException expected) {
      check(expected.toString().contains("NoSuchColumnFamily"), "an unknown family: " + expected);
    }
    refuses(table, new ParseOnly(), "unknown here");
    check(filtered(table, new ValueFilter(CompareOperator.EQUAL, new RegexStringComparator("-(?=7)7$"))) == 1, "a look-ahead");
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
    try (ResultScanner scanner = table.getScanner(new Scan().setFilter(value).setScanMetricsEnabled(true))) {
      long passed = 0;
      while (scanner.next() != null) {
        passed++;
      }
      ScanMetrics metrics = scanner.getScanMetrics();
      check(metrics.countOfRowsScanned.get() == ROWS, "rows that are looked at are counted");
      check(metrics.countOfRowsFiltered.get() == ROWS - passed, "rows that do not pass are counted");
    }
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
