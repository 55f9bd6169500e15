import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.AsyncConnection;
import org.apache.hadoop.hbase.client.AsyncTableRegionLocator;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * The calls of the scenario {@code peers} by the Java client of HBase. Run from its source.
 *
 * <p>{@code java -cp "LIB/*" PeerCalls.java HOST:PORT}; HOST:PORT is ZooKeeper's. Prints {@code {"ready": true}}. Each line
 * of standard input is {@code WORK TABLE CALLERS COUNT ROWS COLUMNS KEYS}, and is answered by a JSON line, as by
 * {@code metaclient_bench.peer_clients}, which describes the works. Ends when its standard input does.
 */
public class PeerCalls {
  private static final byte[] FAMILY = Bytes.toBytes("cf");

  private interface Work {
    /** Does one operation, or several; returns how many. */
    int run(int number) throws Exception;
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    int colon = args[0].lastIndexOf(':');
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, colon));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(colon + 1));
    conf.set("hbase.locator.meta.replicas.mode", "LoadBalance");
    try (Connection connection = ConnectionFactory.createConnection(conf);
        AsyncConnection async = ConnectionFactory.createAsyncConnection(conf).get()) {
      System.out.println("{\"ready\": true}");
      System.out.flush();
      BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        System.out.println(measure(connection, async, line.trim().split(" ")));
        System.out.flush();
      }
    }
    System.exit(0);
  }

  private static String measure(Connection connection, AsyncConnection async, String[] words) throws Exception {
    int callers = Integer.parseInt(words[2]);
    int each = Integer.parseInt(words[3]) / callers;
    OperatingSystemMXBean machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    CyclicBarrier barrier = new CyclicBarrier(callers + 1);
    long[][] taken = new long[callers][];
    Throwable[] failed = new Throwable[callers];
    List<Thread> threads = new ArrayList<>();
    for (int number = 0; number < callers; number++) {
      int own = number;
      Thread thread = new Thread(() -> {
        try (Table table = connection.getTable(TableName.valueOf(words[1]))) {
          Work work = work(table, async, words);
          barrier.await();
          taken[own] = call(work, own, each);
        } catch (Throwable error) {
          failed[own] = error;
          barrier.reset();
        }
      });
      thread.start();
      threads.add(thread);
    }
    barrier.await();
    long begun = System.nanoTime();
    long cpu = machine.getProcessCpuTime();
    for (Thread thread : threads) {
      thread.join();
    }
    double seconds = (System.nanoTime() - begun) / 1e9;
    double cpuSeconds = (machine.getProcessCpuTime() - cpu) / 1e9;
    for (Throwable error : failed) {
      if (error != null) {
        throw new IllegalStateException(String.join(" ", words), error);
      }
    }
    long[] all = Arrays.stream(taken).flatMapToLong(Arrays::stream).sorted().toArray();
    return String.format(java.util.Locale.ROOT,
      "{\"seconds\": %.6f, \"cpu_s\": %.6f, \"operations\": %d, \"median_s\": %.6f, \"p99_s\": %.6f}", seconds,
      cpuSeconds, each * callers, all[all.length / 2] / 1e9, all[(int) (all.length * 0.99)] / 1e9);
  }

  private static long[] call(Work work, int caller, int count) throws Exception {
    long[] taken = new long[count];
    int calls = 0;
    for (int done = 0; done < count;) {
      long begun = System.nanoTime();
      done += work.run(caller * 104729 + done * 7919);
      taken[calls++] = System.nanoTime() - begun;
    }
    return Arrays.copyOf(taken, calls);
  }

  /** Returns eight digits; without String.format, which would take longer than the client's own work. */
  private static byte[] row(int number, int rows) {
    byte[] row = new byte[8];
    int left = Math.floorMod(number, rows);
    for (int at = 7; at >= 0; at--) {
      row[at] = (byte) ('0' + left % 10);
      left /= 10;
    }
    return row;
  }

  private static Work work(Table table, AsyncConnection async, String[] words) throws Exception {
    int count = Integer.parseInt(words[3]) / Integer.parseInt(words[2]);
    int rows = Integer.parseInt(words[4]);
    int columns = Integer.parseInt(words[5]);
    int keys = Integer.parseInt(words[6]);
    switch (words[0]) {
      case "get":
        return number -> expect(1, table.get(new Get(row(number, rows))).size() == columns ? 1 : 0);
      case "put":
        byte[] value = new byte[100 / columns];
        Arrays.fill(value, (byte) 'v');
        return number -> {
          Put put = new Put(row(number, rows));
          for (int column = 0; column < columns; column++) {
            put.addColumn(FAMILY, Bytes.toBytes("c" + column), value);
          }
          table.put(put);
          return 1;
        };
      case "scan":
        return number -> {
          int found = 0;
          try (ResultScanner scanner = table.getScanner(new Scan())) {
            for (Result result = scanner.next(); result != null; result = scanner.next()) {
              found += 1;
            }
          }
          return expect(count, found);
        };
      case "rows":
        return number -> {
          List<Get> gets = new ArrayList<>(keys);
          for (int at = 0; at < keys; at++) {
            gets.add(new Get(row(number + at * 7919, rows)));
          }
          int found = 0;
          for (Result result : table.get(gets)) {
            found += result.isEmpty() ? 0 : 1;
          }
          return expect(keys, found);
        };
      case "lookup":
        AsyncTableRegionLocator locator = async.getRegionLocator(table.getName());
        return number -> {
          locator.getRegionLocation(row(number, rows), true).get(60, TimeUnit.SECONDS);
          return 1;
        };
      default:
        throw new IllegalArgumentException("no such work: " + words[0]);
    }
  }

  private static int expect(int wanted, int found) {
    if (found != wanted) {
      throw new IllegalStateException(found + " of " + wanted + " results were complete");
    }
    return wanted;
  }
}
