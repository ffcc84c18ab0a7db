import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.BinaryPrefixComparator;
import org.apache.hadoop.hbase.filter.ColumnCountGetFilter;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;
import org.apache.hadoop.hbase.filter.ColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.ColumnRangeFilter;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.filter.FilterList;
import org.apache.hadoop.hbase.filter.MultipleColumnPrefixFilter;
import org.apache.hadoop.hbase.filter.QualifierFilter;

/**
 * Reads ten columns of a row of very many, and the whole row in pages, in every way that HBase's client offers.
 *
 * <p>Usage: {@code WideRow COLUMNS}. Each line is a way of reading, the milliseconds of its median read, and of its slowest.
 */
public final class WideRow {
  private static final TableName NAME = TableName.valueOf("wide-row");
  private static final byte[] ROW = bytes("row");
  private static final byte[] F = bytes("f");
  private static final byte[] NOTHING = new byte[0];
  private static final int TEN = 10;
  private static final int PAGE = 1_000;

  private static int columns;
  private static Table table;

  /** One read; returns how many cells it saw. */
  private interface Read {
    long run() throws Exception;
  }

  public static void main(String[] args) throws Exception {
    columns = Integer.parseInt(args[0]);
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create())) {
      load(connection);
      table = connection.getTable(NAME);
      ten();
      pages();
    }
  }

  private static void load(Connection connection) throws Exception {
    try (Admin admin = connection.getAdmin(); Table target = connection.getTable(NAME)) {
      admin.createTable(
          TableDescriptorBuilder.newBuilder(NAME).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build());
      for (int first = 0; first < columns; first += PAGE) {
        Put put = new Put(ROW);
        for (int number = first; number < Math.min(columns, first + PAGE); number++) {
          put.addColumn(F, qualifier(number), bytes("value-" + number));
        }
        target.put(put);
      }
      admin.flush(NAME);
    }
  }

  private static void ten() throws Exception {
    int middle = columns / 2 / TEN * TEN;
    byte[] first = qualifier(middle);
    byte[] end = qualifier(middle + TEN);
    byte[] prefix = Arrays.copyOf(first, first.length - 1);
    Get names = new Get(ROW);
    List<Filter> each = new ArrayList<>();
    byte[][] prefixes = new byte[TEN][];
    for (int at = 0; at < TEN; at++) {
      names.addColumn(F, qualifier(middle + at));
      each.add(new QualifierFilter(CompareOperator.EQUAL, new BinaryComparator(qualifier(middle + at))));
      prefixes[at] = qualifier(middle + at);
    }
    Filter from = new QualifierFilter(CompareOperator.GREATER_OR_EQUAL, new BinaryComparator(first));
    Filter below = new QualifierFilter(CompareOperator.LESS, new BinaryComparator(end));
    measure("ten-by-name", 40, TEN, () -> table.get(names).size());
    filtered("ten-ColumnRangeFilter", new ColumnRangeFilter(first, true, end, false));
    filtered("ten-ColumnPrefixFilter", new ColumnPrefixFilter(prefix));
    filtered("ten-MultipleColumnPrefixFilter", new MultipleColumnPrefixFilter(prefixes));
    filtered("ten-QualifierFilter-prefix", new QualifierFilter(CompareOperator.EQUAL, new BinaryPrefixComparator(prefix)));
    filtered("ten-QualifierFilter-from-below", new FilterList(FilterList.Operator.MUST_PASS_ALL, from, below));
    filtered("ten-QualifierFilter-any-of", new FilterList(FilterList.Operator.MUST_PASS_ONE, each));
    filtered("ten-ColumnCountGetFilter", new ColumnCountGetFilter(TEN));
    filtered("ten-ColumnPaginationFilter-from", new ColumnPaginationFilter(TEN, first));
    filtered("ten-ColumnPaginationFilter-offset", new ColumnPaginationFilter(TEN, middle));
    measure("ten-of-store", 40, TEN, () -> table.get(new Get(ROW).setMaxResultsPerColumnFamily(TEN)).size());
    measure("ten-of-store-offset", 40, TEN,
        () -> table.get(new Get(ROW).setMaxResultsPerColumnFamily(TEN).setRowOffsetPerColumnFamily(middle)).size());
  }

  private static void filtered(String name, Filter filter) throws Exception {
    measure(name, 40, TEN, () -> table.get(new Get(ROW).setFilter(filter)).size());
  }

  private static void pages() throws Exception {
    measure("all-one-get", 9, columns, () -> table.get(new Get(ROW)).size());
    measure("all-scan-batch", 5, columns, () -> {
      long cells = 0;
      try (ResultScanner scanner = table.getScanner(new Scan().withStartRow(ROW).setLimit(1).setBatch(PAGE))) {
        for (Result result = scanner.next(); result != null; result = scanner.next()) {
          cells += result.size();
        }
      }
      return cells;
    });
    measure("all-ColumnRangeFilter", 5, columns, () -> behindTheLast(
        last -> new Get(ROW).setMaxResultsPerColumnFamily(PAGE).setFilter(new ColumnRangeFilter(last, false, null, false))));
    // The first column of a page is the last of the page before.
    measure("all-ColumnPaginationFilter-from", 5, columns + (columns - 2) / (PAGE - 1), () -> {
      long cells = 0;
      byte[] from = NOTHING;
      while (true) {
        Result result = table.get(new Get(ROW).setFilter(new ColumnPaginationFilter(PAGE, from)));
        cells += result.size();
        if (result.size() < PAGE) {
          return cells;
        }
        from = last(result);
      }
    });
    measure("all-ColumnPaginationFilter-offset", 1, columns,
        () -> atOffsets(offset -> new Get(ROW).setFilter(new ColumnPaginationFilter(PAGE, offset))));
    measure("all-store-offset", 1, columns,
        () -> atOffsets(offset -> new Get(ROW).setMaxResultsPerColumnFamily(PAGE).setRowOffsetPerColumnFamily(offset)));
  }

  private interface PageBehind {
    Get get(byte[] last) throws Exception;
  }

  private static long behindTheLast(PageBehind page) throws Exception {
    long cells = 0;
    byte[] last = NOTHING;
    while (true) {
      Result result = table.get(page.get(last));
      cells += result.size();
      if (result.size() < PAGE) {
        return cells;
      }
      last = last(result);
    }
  }

  private interface PageAt {
    Get get(int offset) throws Exception;
  }

  private static long atOffsets(PageAt page) throws Exception {
    int cells = 0;
    while (true) {
      Result result = table.get(page.get(cells));
      cells += result.size();
      if (result.size() < PAGE) {
        return cells;
      }
    }
  }

  private static byte[] last(Result result) {
    Cell[] cells = result.rawCells();
    return CellUtil.cloneQualifier(cells[cells.length - 1]);
  }

  private static void measure(String name, int times, long expected, Read read) throws Exception {
    long[] took = new long[times];
    // A read that takes long is not repeated to warm up.
    for (int at = times > 1 ? -2 : 0; at < times; at++) {
      long began = System.nanoTime();
      long cells = read.run();
      if (cells != expected) {
        throw new IllegalStateException(name + " saw " + cells + " cells instead of " + expected);
      }
      if (at >= 0) {
        took[at] = System.nanoTime() - began;
      }
    }
    Arrays.sort(took);
    System.out.printf(Locale.ROOT, "%-34s %12.2f %12.2f%n", name, took[times / 2] / 1e6, took[times - 1] / 1e6);
  }

  private static byte[] qualifier(int number) {
    return bytes(String.format("column-%09d", number));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }
}
