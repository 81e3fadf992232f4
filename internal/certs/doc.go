// Package certs makes, loads and checks the certificates of a Weir cluster.
//
// A cluster has one certificate authority (CA). Each node has a certificate that names the
// cluster and the node's id, and each client one that names the cluster, the client and its
// role. The name is a URI in the certificate's subject alternative names (RFC 5280, section
// 4.2.1.6):
//
//	urn:weir:CLUSTER:node:ID
//	urn:weir:CLUSTER:client:NAME:ROLE
//
// Clients verify a node as HTTPS does, by the host names and addresses of its certificate. Nodes
// verify each other by cluster and id. A Source holds the certificate of a node in memory and
// reads it again when its files change.
package certs
