import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
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

/**
 * Writes, counts, reads and scans with HBase's unmodified client and its stock settings while servers fail, and checks every
 * answer.
 *
 * <p>Usage: {@code Failover QUORUM REGIONS}. Standard input has one command in each line: {@code phase} begins to measure,
 * {@code report} prints what was measured since, {@code end} stops, reads everything and prints a last report. Reports are
 * JSON, one in each line of standard output; the first line is {@code ready}.
 *
 * <p>The gap of a region is the longest time in which one kind of call to it (puts, increments, gets) had no answer. Each kind
 * has one thread for each region, so a gap is a call with all its retries.
 */
public final class Failover {
  private static final TableName NAME = TableName.valueOf("failover");
  private static final byte[] F = bytes("f");
  private static final byte[] Q = bytes("q");
  /** Rows of a region that never change, which scans count; and rows that its puts overwrite in turn. */
  private static final int STATIC_ROWS = 40;
  private static final int PUT_ROWS = 8;
  /** Between two calls of a thread, so that the load leaves the machine room for the servers. */
  private static final long PAUSE_MILLIS = 5;
  private static final int PROBLEMS_MAX = 20;

  private static Region[] regions;
  private static Connection connection;
  private static volatile boolean stopped;
  private static final Queue<String> problems = new ConcurrentLinkedQueue<>();
  private static final AtomicLong calls = new AtomicLong();
  private static final AtomicLong scans = new AtomicLong();
  private static final AtomicLong failed = new AtomicLong();
  private static final AtomicLong unknown = new AtomicLong();

  private interface Work {
    void run(Table table) throws Exception;
  }

  /** One thread's calls. */
  private static final class Gap {
    private final String kind;
    private final Region region;
    private long last = System.nanoTime();
    private long longest;

    Gap(Region region, String kind) {
      this.region = region;
      this.kind = kind;
    }

    synchronized void begin() {
      last = System.nanoTime();
      longest = 0;
    }

    synchronized void answered() {
      longest = millis();
      last = System.nanoTime();
    }

    /** Until now, if no answer has come since. */
    synchronized long millis() {
      return Math.max(longest, TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - last));
    }
  }

  /** The rows of one region at the start; splits, merges and moves do not change what belongs to it here. */
  private static final class Region {
    private final String name;
    /** Of each row of puts: the newest value that was acknowledged, and the newest that was sent. */
    private final AtomicLong[] acknowledged = longs();
    private final AtomicLong[] sent = longs();
    private final AtomicLong batched = new AtomicLong();
    private long counted;
    private long unknowns;
    private final Gap puts = new Gap(this, "put");
    private final Gap increments = new Gap(this, "increment");
    private final Gap gets = new Gap(this, "get");

    Region(int number) {
      name = String.format("%03d", number);
    }

    private static AtomicLong[] longs() {
      AtomicLong[] longs = new AtomicLong[PUT_ROWS];
      Arrays.setAll(longs, at -> new AtomicLong());
      return longs;
    }

    byte[] row(String kind, int number) {
      return bytes(name + "-" + kind + String.format("%03d", number));
    }

    List<Gap> gaps() {
      return List.of(puts, increments, gets);
    }
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", args[0]);
    regions = new Region[Integer.parseInt(args[1])];
    Arrays.setAll(regions, Region::new);
    connection = ConnectionFactory.createConnection(conf);
    create();
    CountDownLatch warm = new CountDownLatch(3 * regions.length);
    List<Thread> threads = new ArrayList<>();
    for (Region region : regions) {
      threads.add(repeat(region.puts, warm, putter(region)));
      threads.add(repeat(region.increments, warm, counter(region)));
      threads.add(repeat(region.gets, warm, getter(region)));
    }
    threads.add(repeat(null, null, table -> scan(table, new Scan().setCaching(7))));
    threads.add(repeat(null, null, table -> scan(table, new Scan().setReversed(true).setCaching(100))));
    threads.add(repeat(null, null, Failover::batch));
    warm.await();
    System.out.println("ready");
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String command = commands.readLine(); command != null; command = commands.readLine()) {
      switch (command) {
        case "phase" -> begin();
        case "report" -> report();
        case "end" -> {
          stopped = true;
          for (Thread thread : threads) {
            thread.join();
          }
          readAll();
          report();
          connection.close();
          return;
        }
        default -> throw new IllegalArgumentException("no such command: " + command);
      }
    }
    System.exit(1);
  }

  private static void create() throws Exception {
    byte[][] splits = new byte[regions.length - 1][];
    for (int at = 1; at < regions.length; at++) {
      splits[at - 1] = bytes(regions[at].name);
    }
    try (Admin admin = connection.getAdmin(); Table table = connection.getTable(NAME)) {
      admin.createTable(TableDescriptorBuilder.newBuilder(NAME)
          .setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build(), splits);
      for (Region region : regions) {
        List<Put> puts = new ArrayList<>();
        for (int number = 0; number < STATIC_ROWS; number++) {
          puts.add(new Put(region.row("s", number)).addColumn(F, Q, bytes("static")));
        }
        table.put(puts);
      }
    }
  }

  /** Repeats a call until the end; a failure is counted, and the thread goes on. */
  private static Thread repeat(Gap gap, CountDownLatch warm, Work work) {
    Thread thread = new Thread(() -> {
      boolean isFirst = true;
      try (Table table = connection.getTable(NAME)) {
        while (!stopped) {
          try {
            work.run(table);
            if (gap != null) {
              gap.answered();
            }
            calls.incrementAndGet();
          } catch (Exception error) {
            failed.incrementAndGet();
            problem((gap == null ? "" : gap.kind + " in " + gap.region.name + " ") + "fails: " + brief(error));
          }
          if (isFirst && warm != null) {
            warm.countDown();
          }
          isFirst = false;
          Thread.sleep(PAUSE_MILLIS);
        }
      } catch (Exception error) {
        problem("a thread ended: " + error);
      }
    });
    thread.start();
    return thread;
  }

  private static Work putter(Region region) {
    long[] next = {0};
    return table -> {
      long value = ++next[0];
      int row = (int) (value % PUT_ROWS);
      region.sent[row].set(value);
      table.put(new Put(region.row("p", row)).addColumn(F, Q, number(value)));
      region.acknowledged[row].set(value);
    };
  }

  /** A get sees what was acknowledged before it began, and nothing that was sent after it ended. */
  private static Work getter(Region region) {
    int[] next = {0};
    return table -> {
      int row = next[0]++ % PUT_ROWS;
      long least = region.acknowledged[row].get();
      long seen = number(table.get(new Get(region.row("p", row))).getValue(F, Q));
      long most = region.sent[row].get();
      if (seen < least || seen > most) {
        problem("a get of row " + row + " in " + region.name + " sees " + seen + ", not " + least + " to " + most);
      }
    };
  }

  /** Only this thread changes the counter, so each answer is known, but for increments whose outcome is not. */
  private static Work counter(Region region) {
    return table -> {
      long seen;
      try {
        seen = table.incrementColumnValue(region.row("c", 0), F, Q, 1);
      } catch (Exception error) {
        region.unknowns++;
        if (!brief(error).contains("unknown")) {
          throw error;
        }
        unknown.incrementAndGet();
        return;
      }
      region.counted++;
      if (seen < region.counted || seen > region.counted + region.unknowns) {
        problem("a counter in " + region.name + " answers " + seen + ", not " + region.counted + " + " + region.unknowns);
        // Said once.
        region.counted = seen;
      }
    };
  }

  /** A batch with a row of each region. */
  private static void batch(Table table) throws Exception {
    long value = regions[0].batched.get() + 1;
    List<Put> puts = new ArrayList<>();
    List<Get> gets = new ArrayList<>();
    for (Region region : regions) {
      puts.add(new Put(region.row("b", 0)).addColumn(F, Q, number(value)));
      gets.add(new Get(region.row("b", 0)));
    }
    table.put(puts);
    regions[0].batched.set(value);
    Result[] results = table.get(gets);
    for (int at = 0; at < results.length; at++) {
      if (number(results[at].getValue(F, Q)) != value) {
        problem("a batch of gets does not see " + value + " in " + regions[at].name);
      }
    }
  }

  /** Rows come in order, each once, and those that never change are all there. */
  private static void scan(Table table, Scan scan) throws Exception {
    int found = 0;
    byte[] last = null;
    try (ResultScanner scanner = table.getScanner(scan)) {
      for (Result result : scanner) {
        byte[] row = result.getRow();
        if (last != null && (Arrays.compareUnsigned(last, row) < 0) == scan.isReversed()) {
          problem("a scan has " + text(row) + " after " + text(last));
        }
        if (last != null && Arrays.equals(last, row)) {
          problem("a scan repeats " + text(row));
        }
        last = row;
        found += text(row).charAt(4) == 's' ? 1 : 0;
      }
    }
    if (found != STATIC_ROWS * regions.length) {
      problem("a scan has " + found + " of " + STATIC_ROWS * regions.length + " rows");
    }
    scans.incrementAndGet();
  }

  /** At the end, when nothing changes. */
  private static void readAll() throws Exception {
    try (Table table = connection.getTable(NAME)) {
      scan(table, new Scan());
      for (Region region : regions) {
        for (int row = 0; row < PUT_ROWS; row++) {
          getterOf(region, row).run(table);
        }
        long count = number(table.get(new Get(region.row("c", 0))).getValue(F, Q));
        if (count < region.counted || count > region.counted + region.unknowns) {
          problem("the counter of " + region.name + " is " + count + ", not " + region.counted + " + " + region.unknowns);
        }
      }
    }
  }

  private static Work getterOf(Region region, int row) {
    return table -> {
      long seen = number(table.get(new Get(region.row("p", row))).getValue(F, Q));
      if (seen < region.acknowledged[row].get() || seen > region.sent[row].get()) {
        problem("row " + row + " of " + region.name + " is " + seen + ", not " + region.acknowledged[row]);
      }
    };
  }

  private static void begin() {
    for (Region region : regions) {
      region.gaps().forEach(Gap::begin);
    }
    for (AtomicLong counted : List.of(calls, scans, failed, unknown)) {
      counted.set(0);
    }
  }

  private static void report() {
    StringBuilder gaps = new StringBuilder();
    for (Region region : regions) {
      for (Gap gap : region.gaps()) {
        gaps.append(gaps.length() == 0 ? "" : ",").append(gap.millis());
      }
    }
    StringBuilder told = new StringBuilder();
    for (String problem = problems.poll(); problem != null; problem = problems.poll()) {
      told.append(told.length() == 0 ? "\"" : ",\"").append(problem.replaceAll("[^\\x20-\\x7e]|[\"\\\\]", " ")).append("\"");
    }
    System.out.printf("{\"gaps_ms\":[%s],\"calls\":%d,\"scans\":%d,\"failed\":%d,\"unknown\":%d,\"problems\":[%s]}%n",
        gaps, calls.get(), scans.get(), failed.get(), unknown.get(), told);
  }

  private static void problem(String text) {
    if (problems.size() < PROBLEMS_MAX) {
      problems.add(text);
    }
  }

  /** An exception with its causes. */
  private static String brief(Throwable error) {
    StringBuilder text = new StringBuilder();
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      String message = cause.toString();
      text.append(text.length() == 0 ? "" : " <- ").append(message, 0, Math.min(message.length(), 400));
    }
    return text.toString();
  }

  private static byte[] number(long value) {
    return bytes(Long.toString(value));
  }

  /** A number that was put, or a counter; 0 if there is none. */
  private static long number(byte[] value) {
    if (value == null) {
      return 0;
    }
    return value.length == 8 && value[0] == 0 ? java.nio.ByteBuffer.wrap(value).getLong() : Long.parseLong(text(value));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] value) {
    return new String(value, StandardCharsets.UTF_8);
  }
}
