import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.mapreduce.CopyTable;
import org.apache.hadoop.hbase.mapreduce.Export;
import org.apache.hadoop.hbase.mapreduce.HashTable;
import org.apache.hadoop.hbase.mapreduce.Import;
import org.apache.hadoop.hbase.mapreduce.SyncTable;
import org.apache.hadoop.hbase.mapreduce.WALPlayer;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALFactory;
import org.apache.hadoop.hbase.wal.WALKeyImpl;
import org.apache.hadoop.hbase.wal.WALProvider;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * HBase's MapReduce tools, unchanged, which write deletes and what these cover in calls of their own. What each of them leaves
 * is compared with what it leaves in HBase 2.6.4, where this program ran with `record` and printed the tables below.
 *
 * <p>java Tools.java DIRECTORY [record]
 */
public final class Tools {
  private static final byte[] F = bytes("f");
  private static final int ROWS = 20;

  /** How much a client gathers before it calls: everything apart, a little, and what HBase has by default. */
  private static final String[] BUFFERS = {"1", "700", "2097152"};

  /** What HBase 2.6.4 has in the end: the rows with their cells, newest first. */
  private static final Map<String, String> EXPECTED = new TreeMap<>();

  static {
    String copied = "again: q@30=new; column: p@10=keep; family: q@40=late; first: q@10=old; rows: 10 of 20; version: q@10=one;";
    EXPECTED.put("CopyTable", copied);
    EXPECTED.put("CopyTable with new version behavior", copied);
    EXPECTED.put("Export and Import", copied);
    EXPECTED.put("WALPlayer", "kept: q@10=v; late: q@30=v; rows: 10 of 20;");
    EXPECTED.put("SyncTable", "added: q@10=source; newer: q@10=source; same: q@10=same;");
  }

  private final Configuration conf;
  private final String directory;
  private final boolean records;
  private final Connection connection;
  private final List<String> differences = new ArrayList<>();

  private Tools(Configuration conf, String directory, boolean records) throws Exception {
    this.conf = conf;
    this.directory = directory;
    this.records = records;
    connection = ConnectionFactory.createConnection(conf);
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("fs.defaultFS", "file:///");
    conf.set("mapreduce.framework.name", "local");
    // Logs are written to the local file system here.
    conf.setBoolean("hbase.unsafe.stream.capability.enforce", false);
    conf.set("hadoop.tmp.dir", args[0] + "/tmp");
    conf.setInt("mapreduce.task.io.sort.mb", 16);
    conf.setInt("hbase.client.retries.number", 6);
    Tools tools = new Tools(conf, args[0], args.length > 1 && args[1].equals("record"));
    for (String buffer : BUFFERS) {
      tools.run(buffer);
    }
    tools.connection.close();
    if (!tools.differences.isEmpty()) {
      tools.differences.forEach(System.out::println);
      System.exit(1);
    }
    System.out.println("ok tools");
    System.exit(0);
  }

  private void run(String buffer) throws Exception {
    conf.set("hbase.client.write.buffer", buffer);
    TableName source = create("source" + buffer, 3, false);
    fill(source);

    for (boolean newVersions : new boolean[] {false, true}) {
      String what = newVersions ? "CopyTable with new version behavior" : "CopyTable";
      if (newVersions && !buffer.equals("2097152")) {
        continue; // In HBase, too, what arrives apart counts in its order then.
      }
      TableName copy = create("copy" + newVersions + buffer, 3, newVersions);
      tool(new CopyTable(), "--all.cells", "--versions=100", "--new.name=" + copy, source.getNameAsString());
      check(what, buffer, copy);
    }

    TableName imported = create("imported" + buffer, 3, false);
    String export = directory + "/export" + buffer;
    tool(new Export(), "-Dhbase.mapreduce.include.deleted.rows=true", source.getNameAsString(), export, "100");
    tool(new Import(), imported.getNameAsString(), export);
    check("Export and Import", buffer, imported);

    TableName replayed = create("replayed" + buffer, 1, false);
    String logs = directory + "/logs" + buffer;
    writeLogs(logs, replayed);
    tool(new WALPlayer(), logs, replayed.getNameAsString(), replayed.getNameAsString());
    check("WALPlayer", buffer, replayed);

    if (buffer.equals("2097152")) {
      sync(buffer);
    }
  }

  /** Rows with deletes of every kind. Half of the numbered rows are deleted. */
  private void fill(TableName name) throws Exception {
    try (Table table = connection.getTable(name)) {
      List<Mutation> all = new ArrayList<>();
      for (int at = 0; at < ROWS; at++) {
        all.add(put("row-" + at, "q", 10, "v"));
      }
      all.add(put("column", "p", 10, "keep"));
      all.add(put("column", "q", 10, "v"));
      all.add(put("version", "q", 10, "one"));
      all.add(put("version", "q", 20, "two"));
      all.add(put("family", "q", 10, "v"));
      all.add(put("family", "r", 20, "v"));
      all.add(put("first", "q", 10, "old"));
      all.add(put("again", "q", 10, "old"));
      write(table, all);
      all.clear();
      for (int at = 0; at < ROWS; at += 2) {
        all.add(new Delete(bytes("row-" + at), 20));
      }
      all.add(new Delete(bytes("column")).addColumns(F, bytes("q"), 15));
      all.add(new Delete(bytes("version")).addColumn(F, bytes("q"), 20));
      all.add(new Delete(bytes("family")).addFamily(F, 30));
      all.add(new Delete(bytes("first")).addColumns(F, bytes("q"), 5));
      all.add(new Delete(bytes("again")).addFamilyVersion(F, 10));
      write(table, all);
      write(table, Arrays.asList(put("family", "q", 40, "late"), put("again", "q", 30, "new")));
    }
  }

  /** Two logs. The one with the deletes is longer, so it is played first. */
  private void writeLogs(String logs, TableName table) throws Exception {
    FileSystem files = FileSystem.get(conf);
    byte[] region = bytes("region");
    long[] sequence = {0};
    List<Cell> cells = new ArrayList<>();
    for (int at = 0; at < ROWS; at++) {
      cells.add(new KeyValue(bytes("row-" + at), F, bytes("q"), 10, bytes("v")));
    }
    cells.add(new KeyValue(bytes("kept"), F, bytes("q"), 10, bytes("v")));
    writeLog(files, new Path(logs, "log.1"), region, table, sequence, cells);
    cells.clear();
    for (int at = 0; at < ROWS; at += 2) {
      cells.add(new KeyValue(bytes("row-" + at), F, null, 20, KeyValue.Type.DeleteFamily));
    }
    for (int at = 0; at < 2_000; at++) {
      cells.add(new KeyValue(bytes("late"), F, bytes("filler"), 20, KeyValue.Type.DeleteColumn));
    }
    cells.add(new KeyValue(bytes("late"), F, bytes("q"), 30, bytes("v")));
    writeLog(files, new Path(logs, "log.2"), region, table, sequence, cells);
  }

  private void writeLog(
      FileSystem files, Path path, byte[] region, TableName table, long[] sequence, List<Cell> cells) throws Exception {
    files.mkdirs(path.getParent());
    WALProvider.Writer writer = WALFactory.createWALWriter(files, path, conf);
    for (Cell cell : cells) {
      WALKeyImpl key = new WALKeyImpl(region, table, ++sequence[0], sequence[0], UUID.randomUUID());
      writer.append(new WAL.Entry(key, new WALEdit().add(cell)));
    }
    writer.sync(false);
    writer.close();
  }

  /** The target has newer versions than the source, of which each column keeps one. */
  private void sync(String buffer) throws Exception {
    TableName source = create("synced", 1, false);
    TableName target = create("target", 1, false);
    try (Table table = connection.getTable(source)) {
      write(table, Arrays.asList(
          put("newer", "q", 10, "source"), put("same", "q", 10, "same"), put("added", "q", 10, "source")));
    }
    try (Table table = connection.getTable(target)) {
      write(table, Arrays.asList(
          put("newer", "q", 20, "target"), put("same", "q", 10, "same"), put("extra", "q", 10, "target")));
    }
    String hashes = directory + "/hashes";
    tool(new HashTable(conf), "--batchsize=100", source.getNameAsString(), hashes);
    tool(new SyncTable(conf), "--dryrun=false", hashes, source.getNameAsString(), target.getNameAsString());
    check("SyncTable", buffer, target);
  }

  private void tool(Tool tool, String... arguments) throws Exception {
    int status = ToolRunner.run(new Configuration(conf), tool, arguments);
    if (status != 0) {
      throw new IllegalStateException(tool.getClass().getSimpleName() + " ended with " + status);
    }
  }

  private void check(String what, String buffer, TableName name) throws Exception {
    StringBuilder found = new StringBuilder();
    int rows = 0;
    boolean numbered = false;
    try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(new Scan().readAllVersions())) {
      for (Result result : scanner) {
        String row = Bytes.toString(result.getRow());
        if (row.startsWith("row-")) {
          rows += 1;
          continue;
        }
        if (row.compareTo("row-") > 0 && !numbered) {
          numbered = true;
          found.append(rows > 0 ? "rows: " + rows + " of " + ROWS + "; " : "");
        }
        found.append(row).append(":");
        for (Cell cell : result.rawCells()) {
          found.append(" ").append(Bytes.toString(CellUtil.cloneQualifier(cell)));
          found.append("@").append(cell.getTimestamp()).append("=").append(Bytes.toString(CellUtil.cloneValue(cell)));
        }
        found.append("; ");
      }
    }
    if (!numbered && rows > 0) {
      found.append("rows: ").append(rows).append(" of ").append(ROWS).append(";");
    }
    String shown = found.toString().trim();
    if (records) {
      System.out.println(what + " (" + buffer + "): " + shown);
    } else if (!shown.equals(EXPECTED.get(what))) {
      differences.add(what + ", calls of " + buffer + " bytes: " + shown + " where HBase has " + EXPECTED.get(what));
    }
  }

  private TableName create(String name, int versions, boolean newVersions) throws Exception {
    TableName table = TableName.valueOf(name);
    ColumnFamilyDescriptorBuilder family = ColumnFamilyDescriptorBuilder.newBuilder(F).setMaxVersions(versions);
    if (newVersions) {
      family.setNewVersionBehavior(true);
    }
    try (Admin admin = connection.getAdmin()) {
      admin.createTable(TableDescriptorBuilder.newBuilder(table).setColumnFamily(family.build()).build());
    }
    return table;
  }

  private static void write(Table table, List<? extends Mutation> all) throws Exception {
    table.batch(all, new Object[all.size()]);
  }

  private static Put put(String row, String qualifier, long time, String value) {
    return new Put(bytes(row)).addColumn(F, bytes(qualifier), time, bytes(value));
  }

  private static byte[] bytes(String text) {
    return Bytes.toBytes(text);
  }
}
