import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Admin calls that the Thrift gateways do not have; run from its source, without a build step.
 *
 * <p>{@code java -cp "LIB/*" AdminCalls.java HOST:PORT COMMAND ARGUMENT...}; HOST:PORT is ZooKeeper's. Prints one JSON
 * line and returns when the change is done, not when it was asked for. Rows are given as HBase's shell writes them
 * ({@code a\x00b}).
 *
 * <ul>
 *   <li>{@code move ENCODED_REGION SERVER}: "host,port,startcode"
 *   <li>{@code split TABLE ROW}
 *   <li>{@code merge ENCODED_REGION ENCODED_REGION}
 *   <li>{@code flush TABLE}
 *   <li>{@code balancer on|off}: answers what it was before
 *   <li>{@code meta}: the servers of hbase:meta, by replica id
 *   <li>{@code servers}: the live region servers
 * </ul>
 */
public class AdminCalls {
  private static final long WAIT_MS_MAX = 120_000;
  private static final long POLL_MS = 50;

  public static void main(String[] args) throws Exception {
    if (args.length < 2) {
      System.err.println("AdminCalls HOST:PORT COMMAND ARGUMENT...");
      System.exit(2);
    }
    Configuration conf = HBaseConfiguration.create();
    int colon = args[0].lastIndexOf(':');
    conf.set("hbase.zookeeper.quorum", args[0].substring(0, colon));
    conf.set("hbase.zookeeper.property.clientPort", args[0].substring(colon + 1));
    try (Connection connection = ConnectionFactory.createConnection(conf); Admin admin = connection.getAdmin()) {
      System.out.println(run(admin, args));
    }
  }

  private static String run(Admin admin, String[] args) throws Exception {
    switch (args[1]) {
      case "move":
        return move(admin, args[2], ServerName.valueOf(args[3]));
      case "split":
        return split(admin, TableName.valueOf(args[2]), Bytes.toBytesBinary(args[3]));
      case "merge":
        byte[][] regions = {Bytes.toBytes(args[2]), Bytes.toBytes(args[3])};
        admin.mergeRegionsAsync(regions, false).get(WAIT_MS_MAX, TimeUnit.MILLISECONDS);
        return "{\"merged\": " + quoted(args[2], args[3]) + "}";
      case "flush":
        admin.flush(TableName.valueOf(args[2]));
        return "{\"flushed\": " + quoted(args[2]) + "}";
      case "balancer":
        return "{\"was\": " + admin.balancerSwitch(args[2].equals("on"), true) + "}";
      case "meta":
        return "{\"servers\": {" + meta(admin) + "}}";
      case "servers":
        return "{\"servers\": " + quoted(names(admin).toArray(new String[0])) + "}";
      default:
        throw new IllegalArgumentException("unknown command " + args[1]);
    }
  }

  private static List<String> names(Admin admin) throws IOException {
    return admin.getRegionServers().stream().map(ServerName::toString).sorted().collect(Collectors.toList());
  }

  /** Replica id to server, from the registry: this connection is new and has nothing in a cache. */
  private static String meta(Admin admin) throws IOException {
    try (RegionLocator locator = admin.getConnection().getRegionLocator(TableName.META_TABLE_NAME)) {
      return locator.getAllRegionLocations().stream()
          .filter(one -> one != null && one.getServerName() != null)
          .map(one -> "\"" + one.getRegion().getReplicaId() + "\": \"" + one.getServerName() + "\"")
          .collect(Collectors.joining(", "));
    }
  }

  private static String move(Admin admin, String region, ServerName to) throws Exception {
    admin.move(Bytes.toBytes(region), to);
    await("region " + region + " to open on " + to, () -> encoded(admin, to).contains(region));
    return "{\"moved\": " + quoted(region, to.toString()) + "}";
  }

  private static String split(Admin admin, TableName table, byte[] row) throws Exception {
    admin.split(table, row);
    await("both daughters of " + table + " to open", () -> daughters(admin, table, row).size() == 2);
    return "{\"daughters\": " + quoted(daughters(admin, table, row).toArray(new String[0])) + "}";
  }

  /** The open primaries that end or begin at the row. */
  private static List<String> daughters(Admin admin, TableName table, byte[] row) throws IOException {
    List<String> found = new ArrayList<>();
    for (ServerName server : admin.getRegionServers()) {
      for (RegionInfo region : admin.getRegions(server)) {
        boolean isOurs = region.getTable().equals(table) && region.getReplicaId() == 0;
        if (isOurs && (Bytes.equals(region.getStartKey(), row) || Bytes.equals(region.getEndKey(), row))) {
          found.add(region.getEncodedName());
        }
      }
    }
    return found;
  }

  private static Set<String> encoded(Admin admin, ServerName server) throws IOException {
    return admin.getRegions(server).stream().map(RegionInfo::getEncodedName).collect(Collectors.toSet());
  }

  private interface Check {
    boolean isSo() throws Exception;
  }

  private static void await(String what, Check check) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MS_MAX);
    while (!check.isSo()) {
      if (System.nanoTime() > deadline) {
        throw new IOException("waited " + WAIT_MS_MAX / 1000 + " s for " + what);
      }
      Thread.sleep(POLL_MS);
    }
  }

  private static String quoted(String... texts) {
    return List.of(texts).stream().map(text -> '"' + text + '"').collect(Collectors.joining(", ", "[", "]"));
  }
}
