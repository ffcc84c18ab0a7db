import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/**
 * Measures HBase's unmodified client against any cluster that it finds: rows of 40 + 100 bytes, one workload after another.
 *
 * <p>Usage: {@code Bench ROWS SECONDS PID,PID,... [WORKLOAD ...]}. Each line is a workload, its rate, the servers' processor
 * time for each row (of the processes PID) and the client's.
 */
public final class Bench {
  private static final TableName NAME = TableName.valueOf("bench");
  private static final byte[] F = "f".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] Q = "q".getBytes(StandardCharsets.US_ASCII);
  private static final int REGIONS = 12;
  private static final String[] ALL = {
    "load", "put64", "put256", "get64", "get1", "put1", "multiget", "scan100", "reverse", "fullscan", "incr1000", "incr1", "cas64"
  };

  private static long rows;
  private static long seconds;
  private static String[] servers;
  private static Connection connection;

  /** One operation of a thread; returns how many rows it was about. */
  private interface Work {
    long run(Table table, ThreadLocalRandom random) throws Exception;
  }

  public static void main(String[] args) throws Exception {
    rows = Long.parseLong(args[0]);
    seconds = Long.parseLong(args[1]);
    servers = args[2].split(",");
    Configuration conf = HBaseConfiguration.create();
    String quorum = System.getProperty("quorum");
    if (quorum != null) {
      conf.set("hbase.zookeeper.quorum", quorum);
    }
    connection = ConnectionFactory.createConnection(conf);
    try (Admin admin = connection.getAdmin()) {
      if (!admin.tableExists(NAME)) {
        byte[][] splits = new byte[REGIONS - 1][];
        for (int at = 1; at < REGIONS; at++) {
          splits[at - 1] = row(rows * at / REGIONS);
        }
        admin.createTable(
            TableDescriptorBuilder.newBuilder(NAME).setColumnFamily(ColumnFamilyDescriptorBuilder.of(F)).build(), splits);
      }
    }
    String[] chosen = args.length > 3 ? java.util.Arrays.copyOfRange(args, 3, args.length) : ALL;
    System.out.printf("%-10s %12s %14s %14s %10s%n", "workload", "rows/s", "server us/row", "client us/row", "p50 us");
    for (String workload : chosen) {
      run(workload);
    }
    connection.close();
  }

  private static void run(String workload) throws Exception {
    switch (workload) {
      case "load" -> load();
      case "put64" -> drive(workload, 64, Bench::put);
      case "put256" -> drive(workload, 256, Bench::put);
      case "put1" -> drive(workload, 1, Bench::put);
      case "get64" -> drive(workload, 64, Bench::get);
      case "get1" -> drive(workload, 1, Bench::get);
      case "multiget" -> drive(workload, 4, (table, random) -> {
        List<Get> gets = new ArrayList<>(100);
        for (int at = 0; at < 100; at++) {
          gets.add(new Get(row(random.nextLong(rows))));
        }
        for (Result result : table.get(gets)) {
          check(!result.isEmpty(), "a row is missing");
        }
        return 100;
      });
      case "scan100" -> drive(workload, 64, (table, random) -> {
        long first = random.nextLong(Math.max(1, rows - 100));
        return count(table, new Scan().withStartRow(row(first)).setLimit(100).setCaching(100));
      });
      case "reverse" -> drive(workload, 1, (table, random) -> {
        long first = 10_000 + random.nextLong(Math.max(1, rows - 10_000));
        return count(table, new Scan().setReversed(true).withStartRow(row(first)).setLimit(10_000).setCaching(1_000));
      });
      case "fullscan" -> drive(workload, 1, (table, random) -> count(table, new Scan().setCaching(10_000)));
      case "incr1000" -> drive(workload, 64, (table, random) -> increment(table, 1 + random.nextLong(1_000)));
      case "incr1" -> drive(workload, 64, (table, random) -> increment(table, 0));
      case "cas64" -> drive(workload, 64, (table, random) -> {
        byte[] key = row(random.nextLong(rows));
        Put put = new Put(key).addColumn(F, Q, value(random));
        table.checkAndMutate(CheckAndMutate.newBuilder(key).ifNotExists(F, "absent".getBytes()).build(put));
        return 1;
      });
      default -> throw new IllegalArgumentException("no such workload: " + workload);
    }
  }

  private static long put(Table table, ThreadLocalRandom random) throws Exception {
    table.put(new Put(row(random.nextLong(rows))).addColumn(F, Q, value(random)).setDurability(durability()));
    return 1;
  }

  private static Durability durability() {
    return Boolean.getBoolean("fsync") ? Durability.FSYNC_WAL : Durability.USE_DEFAULT;
  }

  private static long get(Table table, ThreadLocalRandom random) throws Exception {
    check(!table.get(new Get(row(random.nextLong(rows)))).isEmpty(), "a row is missing");
    return 1;
  }

  private static long increment(Table table, long number) throws Exception {
    table.increment(new Increment(row(number)).addColumn(F, "n".getBytes(), 1));
    return 1;
  }

  private static long count(Table table, Scan scan) throws Exception {
    long count = 0;
    try (ResultScanner scanner = table.getScanner(scan)) {
      while (scanner.next() != null) {
        count++;
      }
    }
    return count;
  }

  /** Four threads, each with a BufferedMutator and a quarter of the rows. */
  private static void load() throws Exception {
    long before = cpu(servers);
    long own = ownCpu();
    long began = System.nanoTime();
    List<Thread> threads = new ArrayList<>();
    for (long part = 0; part < 4; part++) {
      long first = rows * part / 4;
      long end = rows * (part + 1) / 4;
      threads.add(thread(() -> {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        try (BufferedMutator mutator = connection.getBufferedMutator(NAME)) {
          for (long number = first; number < end; number++) {
            mutator.mutate(new Put(row(number)).addColumn(F, Q, value(random)).setDurability(durability()));
          }
        }
      }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    say("load", rows, System.nanoTime() - began, cpu(servers) - before, ownCpu() - own, 0);
  }

  private interface Body {
    void run() throws Exception;
  }

  private static Thread thread(Body body) {
    Thread thread = new Thread(() -> {
      try {
        body.run();
      } catch (Exception error) {
        error.printStackTrace();
        System.exit(1);
      }
    });
    thread.start();
    return thread;
  }

  private static void drive(String name, int threads, Work work) throws Exception {
    AtomicLong done = new AtomicLong();
    List<long[]> latencies = new ArrayList<>();
    // The first second warms up.
    long first = System.nanoTime() + 1_000_000_000L;
    long end = first + seconds * 1_000_000_000L;
    List<Thread> running = new ArrayList<>();
    for (int at = 0; at < threads; at++) {
      long[] sample = new long[4_096];
      latencies.add(sample);
      running.add(thread(() -> {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        int taken = 0;
        try (Table table = connection.getTable(NAME)) {
          for (long now = System.nanoTime(); now < end; ) {
            long about = work.run(table, random);
            long after = System.nanoTime();
            if (now >= first) {
              done.addAndGet(about);
              sample[taken++ % sample.length] = after - now;
            }
            now = after;
          }
        }
      }));
    }
    Thread.sleep(Math.max(0, (first - System.nanoTime()) / 1_000_000));
    long before = cpu(servers);
    long own = ownCpu();
    long began = System.nanoTime();
    for (Thread thread : running) {
      thread.join();
    }
    long took = System.nanoTime() - began;
    long server = cpu(servers) - before;
    long[] all = latencies.stream().flatMapToLong(java.util.Arrays::stream).filter(one -> one > 0).sorted().toArray();
    say(name, done.get(), took, server, ownCpu() - own, all.length == 0 ? 0 : all[all.length / 2]);
  }

  private static void say(String name, long count, long nanos, long serverMs, long clientMs, long p50) {
    System.out.printf(
        Locale.ROOT, "%-10s %12.0f %14.2f %14.2f %10.0f%n", name, count * 1e9 / nanos, serverMs * 1e3 / count, clientMs * 1e3 / count, p50 / 1e3);
  }

  /** Processor time of processes, in milliseconds. */
  private static long cpu(String[] pids) throws Exception {
    long ticks = 0;
    for (String pid : pids) {
      String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
      String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
      ticks += Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
    }
    return ticks * 10;
  }

  private static long ownCpu() throws Exception {
    return cpu(new String[] {"self"});
  }

  /** 40 bytes that sort as the number. */
  private static byte[] row(long number) {
    return String.format("row-%036d", number).getBytes(StandardCharsets.US_ASCII);
  }

  private static byte[] value(ThreadLocalRandom random) {
    byte[] value = new byte[100];
    random.nextBytes(value);
    return value;
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new IllegalStateException(what);
    }
  }
}
