import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/** A Kerberos server for tests: Kdc FOLDER PORT REALM PRINCIPAL=KEYTAB... writes the keytabs and runs until it is killed. */
public class Kdc {
  public static void main(String[] args) throws Exception {
    File folder = new File(args[0]);
    SimpleKdcServer kdc = new SimpleKdcServer();
    File work = new File(folder, "kdc"); // it writes a krb5.conf of its own there
    work.mkdir();
    kdc.setWorkDir(work);
    kdc.setKdcHost("127.0.0.1");
    kdc.setKdcRealm(args[2]);
    kdc.setAllowUdp(false);
    kdc.setKdcTcpPort(Integer.parseInt(args[1]));
    kdc.init();
    kdc.start();
    for (int i = 3; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      kdc.createPrincipal(pair[0]);
      kdc.exportPrincipal(pair[0], new File(folder, pair[1]));
    }
    Path ready = folder.toPath().resolve("kdc.ready");
    Files.write(ready, new byte[0]);
    Thread.currentThread().join();
  }
}
