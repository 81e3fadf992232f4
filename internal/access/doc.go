// Package access decides which calls a caller may make.
//
// A Principal is a caller that has proven its name, by a certificate or by a token. Its roles permit calls, in all
// domains or in one of them. Package api knows which role each call needs, and package certs which
// principal a certificate names.
package access
