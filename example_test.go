package headgate_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
)

func ExampleDecoder_Structured() {
	var d headgate.Decoder
	got, err := d.Structured([]byte(`{
		"specversion": "1.0", "type": "ticket.opened", "tenant": "acme", "ttl": 99,
		"data": {"ticket_id": "T-1", "amount": 12.50}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	tenant, _ := got.Event.Extension("tenant")
	fmt.Println(got.Event.Type, tenant)
	fmt.Println(string(got.Event.Data))
	fmt.Println("ignored:", got.Ignored)
	// Output:
	// ticket.opened acme
	// {"ticket_id": "T-1", "amount": 12.50}
	// ignored: [ttl]
}

func ExampleDecoder_ReadLines() {
	body := strings.NewReader(`{"specversion":"1.0","id":"1","type":"ticket.opened"}
{"specversion":"1.0","id":"2","type":"ticket opened"}
{"specversion":"1.0","id":"3","type":"ticket.closed"}
`)
	var d headgate.Decoder
	items := d.ReadLines(body)
	for item, more := items.Next(); more; item, more = items.Next() {
		if item.Err != nil {
			fmt.Printf("line %d, column %d: %s\n", item.Line, item.Err.Where.Column, item.Err.Detail)
			continue
		}
		fmt.Println("line", item.Line, item.Event.ID, item.Event.Type)
	}
	fmt.Println(items.Err())
	// Output:
	// line 1 1 ticket.opened
	// line 2, column 38: type may hold letters, digits, ".", "_", "-" and "/" only: "ticket opened".
	// line 3 3 ticket.closed
	// <nil>
}

func ExampleAppendStructured() {
	e := &headgate.Event{ID: "1", Source: "/helpdesk", Type: "ticket.opened", Key: "T-1", Data: []byte(`{"amount":12.50}`)}
	e.SetExtension(headgate.Extension{Name: "urgent", Value: "true", Kind: headgate.ExtensionBool})
	fmt.Println(string(headgate.AppendStructured(nil, e)))
	// Output:
	// {"specversion":"1.0","id":"1","source":"/helpdesk","type":"ticket.opened","partitionkey":"T-1","urgent":true,"data":{"amount":12.50}}
}

func ExampleError() {
	err := fmt.Errorf("publish: %w", headgate.NewError(headgate.CodeLoop, "triage/ticket.noted came 5 times on one path"))
	if errors.Is(err, &headgate.Error{Code: headgate.CodeLoop}) {
		info := headgate.AsError(err).Info()
		fmt.Println(info.Status, info.Outcome, info.Retry)
		fmt.Println(info.Fix)
	}
	// Output:
	// 409 not_applied never
	// Do not answer your own kind of event; finish with what you have.
}
