import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.PageFilter;
import org.apache.hadoop.hbase.util.Bytes;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB over HBase's unmodified client: one connection of the process, a table of each thread, a call for each operation, and
 * scans with a page filter, as YCSB's own binding does it. The first thread creates the table, with {@code regions} regions.
 */
public final class YcsbClient extends DB {
  private static final byte[] F = Bytes.toBytes("family");

  private static Connection connection;
  private static int threads;

  private Table table;

  @Override
  public void init() throws DBException {
    try {
      synchronized (YcsbClient.class) {
        threads++;
        if (connection == null) {
          Configuration conf = HBaseConfiguration.create();
          conf.set("hbase.zookeeper.quorum", getProperties().getProperty("quorum", "127.0.0.1"));
          connection = ConnectionFactory.createConnection(conf);
          create();
        }
      }
      table = connection.getTable(name());
    } catch (Exception error) {
      throw new DBException(error);
    }
  }

  private TableName name() {
    return TableName.valueOf(getProperties().getProperty("table", "usertable"));
  }

  private void create() throws Exception {
    int regions = Integer.parseInt(getProperties().getProperty("regions", "12"));
    byte[][] splits = new byte[regions - 1][];
    for (int at = 1; at < regions; at++) {
      // Keys are hashes.
      splits[at - 1] = Bytes.toBytes("user" + (1_000 + 8_999 * at / regions));
    }
    try (Admin admin = connection.getAdmin()) {
      if (!admin.tableExists(name())) {
        admin.createTable(TableDescriptorBuilder.newBuilder(name())
            .setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build(), splits);
      }
    }
  }

  @Override
  public void cleanup() throws DBException {
    try {
      table.close();
      synchronized (YcsbClient.class) {
        threads--;
        if (threads == 0) {
          connection.close();
          connection = null;
        }
      }
    } catch (Exception error) {
      throw new DBException(error);
    }
  }

  private interface Call {
    Status run() throws Exception;
  }

  private static Status carryOut(Call call) {
    try {
      return call.run();
    } catch (Exception error) {
      System.err.println("call failed: " + error);
      return Status.ERROR;
    }
  }

  @Override
  public Status read(String ignored, String key, Set<String> fields, Map<String, ByteIterator> into) {
    return carryOut(() -> {
      Get get = new Get(Bytes.toBytes(key));
      if (fields == null) {
        get.addFamily(F);
      } else {
        fields.forEach(field -> get.addColumn(F, Bytes.toBytes(field)));
      }
      Result result = table.get(get);
      fill(result, into);
      return result.isEmpty() ? Status.NOT_FOUND : Status.OK;
    });
  }

  @Override
  public Status scan(String ignored, String key, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> into) {
    return carryOut(() -> {
      Scan scan = new Scan().withStartRow(Bytes.toBytes(key)).setCaching(count).setFilter(new PageFilter(count));
      if (fields == null) {
        scan.addFamily(F);
      } else {
        fields.forEach(field -> scan.addColumn(F, Bytes.toBytes(field)));
      }
      byte[] last = Bytes.toBytes(key);
      try (ResultScanner scanner = table.getScanner(scan)) {
        for (Result result = scanner.next(); result != null && into.size() < count; result = scanner.next()) {
          int order = Bytes.compareTo(result.getRow(), last);
          if (order < 0 || order == 0 && !into.isEmpty()) {
            return Status.UNEXPECTED_STATE;
          }
          last = result.getRow();
          HashMap<String, ByteIterator> row = new HashMap<>();
          fill(result, row);
          into.add(row);
        }
      }
      return Status.OK;
    });
  }

  private static void fill(Result result, Map<String, ByteIterator> into) {
    for (Cell cell : result.rawCells()) {
      into.put(Bytes.toString(CellUtil.cloneQualifier(cell)), new ByteArrayByteIterator(CellUtil.cloneValue(cell)));
    }
  }

  @Override
  public Status update(String ignored, String key, Map<String, ByteIterator> values) {
    return carryOut(() -> {
      Put put = new Put(Bytes.toBytes(key));
      values.forEach((field, value) -> put.addColumn(F, Bytes.toBytes(field), value.toArray()));
      table.put(put);
      return Status.OK;
    });
  }

  @Override
  public Status insert(String ignored, String key, Map<String, ByteIterator> values) {
    return update(ignored, key, values);
  }

  @Override
  public Status delete(String ignored, String key) {
    return carryOut(() -> {
      table.delete(new Delete(Bytes.toBytes(key)));
      return Status.OK;
    });
  }
}
