// Package ui provides the dashboard of a node: pages for people that show the whole cluster.
//
// A page is made of what the public API answers, called within the process with the permissions of the page's caller, so that roles, the
// audit log and validation are those of the API. What moves comes from samples of the nodes' loads, which Run takes. Pages are
// whole without scripts. The browser asks for nothing but files of this package.
package ui
