import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileContext;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.util.Bytes;

/** Writes a store file per compression: FOLDER ROWS COMPRESSION... The file is FOLDER/COMPRESSION. */
public class StoreFileCodecs {
  public static void main(String[] given) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    FileSystem files = FileSystem.getLocal(conf);
    for (int at = 2; at < given.length; at++) {
      HFileContext context = new HFileContextBuilder()
          .withCompression(Compression.getCompressionAlgorithmByName(given[at].toLowerCase()))
          .withColumnFamily(Bytes.toBytes("d"))
          .build();
      HFile.Writer writer = HFile.getWriterFactory(conf, CacheConfig.DISABLED)
          .withPath(files, new Path(given[0], given[at]))
          .withFileContext(context)
          .create();
      for (int row = 0; row < Integer.parseInt(given[1]); row++) {
        byte[] value = Bytes.toBytes("v" + row % 100 + "x".repeat(row % 40));
        writer.append(new KeyValue(Bytes.toBytes(String.format("row%08d", row)), Bytes.toBytes("d"), Bytes.toBytes("q"), 7L, value));
      }
      writer.close();
    }
  }
}
