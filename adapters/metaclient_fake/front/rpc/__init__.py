"""The fake as an HBase that speaks its own RPC: a master, a listening socket per region server, and the registry.

========================== ==========================================================================================
``addresses``              a port for each server, and server names as clients outside see them
``channel``                one connection: preamble, header, calls in any number and order
``errors``                 metaclient's errors as HBase's exceptions
``client_service``         Get, Mutate, Multi, Scan
``meta_rows``              the same for hbase:meta, with addresses that can be reached
``region_admin``           AdminService of a region server
``registry_service``       ClientMetaService: where hbase:meta and the master are
``master_service``         MasterService: tables, namespaces, regions, the cluster's status
``endpoints``              which server has which services, and how all of it starts and ends
========================== ==========================================================================================
"""

from metaclient_fake.front.rpc.endpoints import RpcFront

__all__ = ["RpcFront"]
