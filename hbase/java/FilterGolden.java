import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.filter.*;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.regionserver.RegionScanner;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.Pair;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALFactory;

/**
 * Random cells, and random scans with filters of them, answered by a real region of HBase. Prints one table:
 *
 * <pre>
 * family NAME VERSIONS
 * cell ROW FAMILY QUALIFIER TIME VALUE            bytes in hexadecimal, - for none
 * scan VERSIONS up|down LIMIT OFFSET COLUMNS FILTER
 *   # the filter as text
 *   row ROW FAMILY:QUALIFIER@TIME=VALUE ...
 *   over true|false
 * </pre>
 *
 * Arguments: SEED SCANS. It needs the jars of hbase-server, and the options --add-opens java.base/java.nio=ALL-UNNAMED and
 * --add-opens java.base/java.lang=ALL-UNNAMED: without them FuzzyRowFilter takes masks for keys without open bytes.
 */
public final class FilterGolden {
  private static final String[] FAMILIES = {"a", "b", "c"};
  private static final String[] QUALIFIERS = {"", "d", "n", "p", "pa", "pb", "q", "qz"};
  private static final String[] WORDS = {"", "0", "1", "17", "a", "ab", "B", "xyz", "A b\n"};
  private static final String[] PATTERNS = {"^a", "b$", "\\d+", "[^a-z]", "a|x", "(?i)AB", "^$", ".", "^\\w+$", "\\s"};

  private final Random random;
  private int inSkip;

  private FilterGolden(long seed) {
    random = new Random(seed);
  }

  public static void main(String[] args) throws Exception {
    java.nio.file.Path root = Files.createTempDirectory("golden");
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.rootdir", "file://" + root);
    conf.set("fs.defaultFS", "file:///");
    conf.setBoolean("hbase.hregion.memstore.mslab.enabled", false);
    conf.set("hbase.wal.provider", "filesystem");
    conf.setBoolean("hbase.unsafe.stream.capability.enforce", false);
    new FilterGolden(Long.parseLong(args[0])).run(conf, new Path("file://" + root), Integer.parseInt(args[1]));
    System.exit(0);
  }

  private void run(Configuration conf, Path root, int scans) throws Exception {
    TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(TableName.valueOf("t"));
    int families = 1 + random.nextInt(FAMILIES.length);
    for (int i = 0; i < families; i++) {
      int versions = 1 + random.nextInt(3);
      table.setColumnFamily(
          ColumnFamilyDescriptorBuilder.newBuilder(Bytes.toBytes(FAMILIES[i])).setMaxVersions(versions).build());
      System.out.println("family " + hex(Bytes.toBytes(FAMILIES[i])) + " " + versions);
    }
    TableDescriptor descriptor = table.build();
    RegionInfo info = RegionInfoBuilder.newBuilder(descriptor.getTableName()).build();
    WAL wal = new WALFactory(conf, "golden").getWAL(info);
    HRegion region = HRegion.createHRegion(info, root, conf, descriptor, wal);
    TreeSet<String> rows = new TreeSet<>();
    for (int i = 0; i < 14; i++) {
      rows.add(row());
    }
    for (String row : rows) {
      put(region, row, families);
    }
    for (int i = 0; i < scans; i++) {
      scan(region, families);
    }
  }

  private void put(HRegion region, String row, int families) throws Exception {
    TreeSet<String> seen = new TreeSet<>();
    int cells = 1 + random.nextInt(12);
    for (int i = 0; i < cells; i++) {
      String family = FAMILIES[random.nextInt(families)];
      String qualifier = pick(QUALIFIERS);
      long time = 1 + random.nextInt(5);
      if (!seen.add(family + ":" + qualifier + "@" + time)) {
        continue;
      }
      byte[] value = value(qualifier);
      Put put = new Put(Bytes.toBytes(row)).setDurability(Durability.SKIP_WAL);
      region.put(put.addColumn(Bytes.toBytes(family), Bytes.toBytes(qualifier), time, value));
      System.out.println("cell " + hex(Bytes.toBytes(row)) + " " + hex(Bytes.toBytes(family)) + " "
          + hex(Bytes.toBytes(qualifier)) + " " + time + " " + hex(value));
    }
  }

  private void scan(HRegion region, int families) throws Exception {
    Filter filter = filter(3, families);
    byte[] sent = ProtobufUtil.toFilter(filter).toByteArray();
    Scan scan = new Scan().readVersions(1 + random.nextInt(3)).setReversed(random.nextInt(4) == 0);
    List<String> columns = new ArrayList<>();
    for (int i = 0; i < families && random.nextInt(3) == 0; i++) {
      byte[] family = Bytes.toBytes(FAMILIES[random.nextInt(families)]);
      if (random.nextBoolean()) {
        scan.addFamily(family);
      } else {
        scan.addColumn(family, Bytes.toBytes(pick(QUALIFIERS))).addColumn(family, Bytes.toBytes(pick(QUALIFIERS)));
      }
    }
    scan.getFamilyMap().forEach((family, qualifiers) -> {
      if (qualifiers == null) {
        columns.add(hex(family));
      } else {
        qualifiers.forEach(qualifier -> columns.add(hex(family) + ":" + hex(qualifier)));
      }
    });
    if (random.nextInt(8) == 0) {
      scan.setMaxResultsPerColumnFamily(random.nextInt(3)).setRowOffsetPerColumnFamily(random.nextInt(2));
    }
    scan.setLoadColumnFamiliesOnDemand(true);
    scan.setFilter(ProtobufUtil.toFilter(ProtobufUtil.toFilter(filter)));
    StringBuilder out = new StringBuilder();
    out.append("scan ").append(scan.getMaxVersions()).append(scan.isReversed() ? " down " : " up ")
        .append(scan.getMaxResultsPerColumnFamily()).append(' ').append(scan.getRowOffsetPerColumnFamily()).append(' ')
        .append(columns.isEmpty() ? "*" : String.join(",", columns)).append(' ').append(Bytes.toHex(sent)).append('\n');
    out.append("  # ").append(describe(filter).replace("\n", " ")).append('\n');
    // Some combinations make a scanner of HBase go round in circles.
    FutureTask<String> answer = new FutureTask<>(() -> answer(region, scan));
    Thread thread = new Thread(answer);
    thread.setDaemon(true);
    thread.start();
    try {
      out.append(answer.get(2, TimeUnit.SECONDS));
    } catch (ExecutionException | TimeoutException refused) {
      System.err.println("left out: " + (scan.isReversed() ? "down " : "up ") + describe(filter) + ": " + refused);
      return;
    }
    System.out.print(out);
  }

  private static String answer(HRegion region, Scan scan) throws Exception {
    StringBuilder out = new StringBuilder();
    try (RegionScanner scanner = region.getScanner(scan)) {
      List<Cell> cells = new ArrayList<>();
      boolean more = true;
      while (more) {
        cells.clear();
        more = scanner.next(cells);
        if (!cells.isEmpty()) {
          out.append("  row ").append(hex(CellUtil.cloneRow(cells.get(0))));
          for (Cell cell : cells) {
            out.append(' ').append(hex(CellUtil.cloneFamily(cell))).append(':').append(hex(CellUtil.cloneQualifier(cell)))
                .append('@').append(cell.getTimestamp()).append('=').append(hex(CellUtil.cloneValue(cell)));
          }
          out.append('\n');
        }
      }
      return out.append("  over ").append(scanner.isFilterDone()).append('\n').toString();
    }
  }

  /** A list prints only its first filters by itself. */
  private static String describe(Filter filter) {
    if (filter instanceof FilterList) {
      StringBuilder text = new StringBuilder(((FilterList) filter).getOperator() + "[");
      ((FilterList) filter).getFilters().forEach(part -> text.append(describe(part)).append("; "));
      return text.append(']').toString();
    }
    if (filter instanceof WhileMatchFilter) {
      return "While{" + describe(((WhileMatchFilter) filter).getFilter()) + "}";
    }
    if (filter instanceof SkipFilter) {
      return "Skip{" + describe(((SkipFilter) filter).getFilter()) + "}";
    }
    try {
      return filter.toString();
    } catch (RuntimeException silent) {
      return filter.getClass().getSimpleName();
    }
  }

  private Filter filter(int depth, int families) {
    if (depth > 0 && random.nextInt(2) == 0) {
      switch (random.nextInt(5)) {
        case 0: return new WhileMatchFilter(filter(depth - 1, families));
        case 1: {
          inSkip++;
          Filter skip = new SkipFilter(filter(depth - 1, families));
          inSkip--;
          return skip;
        }
        default: {
          List<Filter> parts = new ArrayList<>();
          for (int i = random.nextInt(4); i >= 0; i--) {
            parts.add(filter(depth - 1, families));
          }
          boolean all = random.nextBoolean();
          return new FilterList(all ? FilterList.Operator.MUST_PASS_ALL : FilterList.Operator.MUST_PASS_ONE, parts);
        }
      }
    }
    byte[] family = Bytes.toBytes(FAMILIES[random.nextInt(families)]);
    String qualifier = pick(QUALIFIERS);
    byte[] column = Bytes.toBytes(qualifier);
    switch (random.nextInt(27)) {
      case 0: return new PageFilter(random.nextInt(5));
      case 1: return new PrefixFilter(Bytes.toBytes(row().substring(0, 1)));
      case 2: return new InclusiveStopFilter(Bytes.toBytes(row()));
      case 3: return new RowFilter(operator(), comparator(row()));
      case 4: return new FamilyFilter(operator(), comparator(Bytes.toString(family)));
      case 5: return new QualifierFilter(operator(), comparator(qualifier));
      case 6: return new ValueFilter(operator(), comparator(pick(WORDS)));
      case 7: return new KeyOnlyFilter(random.nextBoolean());
      case 8: return new FirstKeyOnlyFilter();
      case 9: {
        TreeSet<byte[]> set = new TreeSet<>(Bytes.BYTES_COMPARATOR);
        set.add(column);
        return new FirstKeyValueMatchingQualifiersFilter(set);
      }
      case 10: return new ColumnPrefixFilter(column);
      case 11: {
        TreeSet<String> prefixes = new TreeSet<>(Arrays.asList(pick(QUALIFIERS), pick(QUALIFIERS), qualifier));
        return new MultipleColumnPrefixFilter(prefixes.stream().map(Bytes::toBytes).toArray(byte[][]::new));
      }
      case 12: return new ColumnRangeFilter(random.nextInt(4) == 0 ? null : column, random.nextBoolean(),
          random.nextInt(4) == 0 ? null : Bytes.toBytes(pick(QUALIFIERS)), random.nextBoolean());
      case 13: return new ColumnCountGetFilter(random.nextInt(5));
      case 14: return new ColumnPaginationFilter(random.nextInt(4), random.nextInt(3));
      case 15: return new ColumnPaginationFilter(random.nextInt(4), column);
      case 16: return new TimestampsFilter(Arrays.asList(1L + random.nextInt(5), 1L + random.nextInt(5)), random.nextBoolean());
      case 17: return new ColumnValueFilter(family, column, operator(), valueComparator(qualifier));
      case 18: return random.nextBoolean() ? new DependentColumnFilter(family, column, random.nextBoolean())
          : new DependentColumnFilter(family, column, random.nextBoolean(), operator(), valueComparator(qualifier));
      case 19: return new RandomRowFilter(random.nextBoolean() ? -1 : 2);
      case 20: case 21: return fuzzy();
      // A SkipFilter does not ask about row keys, and the ranges fail without that.
      case 22: case 23: return inSkip > 0 ? fuzzy() : ranges();
      case 24: {
        SingleColumnValueExcludeFilter filter =
            new SingleColumnValueExcludeFilter(family, column, operator(), valueComparator(qualifier));
        filter.setFilterIfMissing(random.nextBoolean());
        filter.setLatestVersionOnly(random.nextBoolean());
        return filter;
      }
      default: {
        SingleColumnValueFilter filter =
            new SingleColumnValueFilter(family, column, operator(), valueComparator(qualifier));
        filter.setFilterIfMissing(random.nextBoolean());
        filter.setLatestVersionOnly(random.nextBoolean());
        return filter;
      }
    }
  }

  private Filter fuzzy() {
    List<Pair<byte[], byte[]>> keys = new ArrayList<>();
    for (int i = random.nextInt(2); i >= 0; i--) {
      byte[] key = Bytes.toBytes(row());
      byte[] mask = new byte[key.length];
      for (int at = 0; at < mask.length; at++) {
        mask[at] = (byte) random.nextInt(2);
      }
      keys.add(new Pair<>(key, mask));
    }
    return new FuzzyRowFilter(keys);
  }

  private Filter ranges() {
    List<MultiRowRangeFilter.RowRange> ranges = new ArrayList<>();
    for (int i = random.nextInt(3); i >= 0; i--) {
      String one = row();
      String other = row();
      boolean inOrder = one.compareTo(other) <= 0;
      boolean inclusive = one.equals(other) || random.nextBoolean();
      ranges.add(new MultiRowRangeFilter.RowRange(inOrder ? one : other, inclusive, inOrder ? other : one, inclusive));
    }
    return new MultiRowRangeFilter(ranges);
  }

  private CompareOperator operator() {
    CompareOperator[] all = CompareOperator.values();
    return all[random.nextInt(all.length - 1)];
  }

  private ByteArrayComparable comparator(String word) {
    byte[] value = Bytes.toBytes(word);
    switch (random.nextInt(8)) {
      case 0: return new BinaryPrefixComparator(value);
      case 1: return new SubstringComparator(word.isEmpty() ? "a" : word.substring(0, 1));
      case 2: return new RegexStringComparator(pick(PATTERNS));
      case 3: return new BitComparator(value, BitComparator.BitwiseOp.values()[random.nextInt(3)]);
      case 4: return random.nextBoolean() ? new NullComparator() : new BinaryComponentComparator(value, 0);
      default: return new BinaryComparator(value);
    }
  }

  /** For the value of a column: some hold numbers only. */
  private ByteArrayComparable valueComparator(String qualifier) {
    switch (qualifier) {
      case "n": return new LongComparator(random.nextInt(5) - 2);
      case "d": return new BigDecimalComparator(decimal());
      default: return comparator(pick(WORDS));
    }
  }

  private byte[] value(String qualifier) {
    switch (qualifier) {
      case "n": return Bytes.toBytes((long) random.nextInt(5) - 2);
      case "d": return Bytes.toBytes(decimal());
      default: return Bytes.toBytes(pick(WORDS));
    }
  }

  private BigDecimal decimal() {
    return BigDecimal.valueOf(random.nextInt(40) - 20, random.nextInt(3) - 1);
  }

  private String row() {
    StringBuilder row = new StringBuilder();
    for (int i = random.nextInt(3); i >= 0; i--) {
      row.append((char) ('a' + random.nextInt(4)));
    }
    return row.toString();
  }

  private String pick(String[] words) {
    return words[random.nextInt(words.length)];
  }

  private static String hex(byte[] bytes) {
    return bytes.length == 0 ? "-" : Bytes.toHex(bytes);
  }
}
