// Package inmemory has the parts of tests that stand for what lies outside of the process: a Listener for the network,
// and Rules for the rules' key in etcd. Both wait on channels and mutexes only, so that they work in a bubble of
// testing/synctest. No program imports this package.
//
// The package imports no other one of the module, so the tests of every package can use it from within:
//
//	listener := inmemory.NewListener()
//	go server.Serve(listener)                 // ends with Close or with the server's Stop
//	conn, err := listener.DialContext(ctx)    // as often as there are connections
package inmemory
