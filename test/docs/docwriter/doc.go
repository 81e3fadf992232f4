// Package docwriter helps commands that write what they have measured into the documentation.
package docwriter
