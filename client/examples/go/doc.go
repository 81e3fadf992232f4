// Package examples shows client/httplimit with other routers than that of net/http. It is a
// module of its own, so that programs that import Weir do not have theirs to
// download.
package examples
