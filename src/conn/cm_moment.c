/* SPDX-License-Identifier: MIT */
/* What a connection manager did, and when. */
#include <errno.h>

#include "conn/conn.h"
#include "util/err.h"
#include "util/opts.h"

void snt__cm_moment(struct snt_conn *conn, enum snt_cm_event event, int status,
		    unsigned reason)
{
	/* Address changes may come at any time; what they leave out is never the end. */
	if (conn->moment_count == SNT__CM_MOMENTS)
		conn->moment_count--;
	conn->moment[conn->moment_count++] = (struct snt__cm_moment){
		.event = (uint8_t)event,
		.status = status,
		.reason = reason,
		.after_ns = snt__conn_loop_now(conn->conn_loop) - conn->began_at,
	};
}

void snt__cm_moment_of(struct snt_conn *conn, const struct snt__cm_event *event)
{
	static const uint8_t events[] = {
		[SNT__CM_EVENT_RESOLVED] = SNT_CM_RESOLVED,
		[SNT__CM_EVENT_REQUEST] = SNT_CM_REQUEST,
		[SNT__CM_EVENT_RESPONSE] = SNT_CM_RESPONSE,
		[SNT__CM_EVENT_ESTABLISHED] = SNT_CM_ESTABLISHED,
		[SNT__CM_EVENT_ADDRESS] = SNT_CM_ADDRESS_CHANGE,
		[SNT__CM_EVENT_REJECTED] = SNT_CM_REJECTED,
		[SNT__CM_EVENT_FAILED] = SNT_CM_FAILED,
		[SNT__CM_EVENT_DISCONNECTED] = SNT_CM_DISCONNECTED,
	};

	snt__cm_moment(conn, events[event->type], event->status, event->reason);
}

const char *snt__cm_moment_text(unsigned event)
{
	static const char *const texts[] = {
		[SNT_CM_RESOLVED] = "the route to the peer is known",
		[SNT_CM_CONNECT] = "the request goes out",
		[SNT_CM_REQUEST] = "the peer's request has come",
		[SNT_CM_ACCEPT] = "the answer goes out",
		[SNT_CM_RESPONSE] = "the peer's answer has come",
		[SNT_CM_ESTABLISHED] = "the peer has confirmed the connection",
		[SNT_CM_ADDRESS_CHANGE] = "the local address has moved",
		[SNT_CM_REJECTED] = "the peer refuses",
		[SNT_CM_FAILED] = "the connection manager has given up",
		[SNT_CM_DISCONNECT] = "this end disconnects",
		[SNT_CM_DISCONNECTED] = "the connection is disconnected",
	};

	return event < sizeof(texts) / sizeof(texts[0]) && texts[event] ? texts[event]
									: "?";
}

int snt_conn_query_cm(const struct snt_conn *conn, unsigned position,
		      struct snt_conn_cm_info *info_out)
{
	const struct snt__cm_moment *moment = &conn->moment[position];
	struct snt_conn_cm_info info = { 0 };

	if (position >= conn->moment_count)
		return snt__fail(ENOENT, "there are %u events, so none with number %u",
				 conn->moment_count, position);
	info.event = moment->event;
	info.status = moment->status;
	info.reason = moment->reason;
	info.after_ns = moment->after_ns;
	info.text = snt__cm_moment_text(moment->event);
	return snt__info_export(info_out, &info, sizeof(info),
				"struct snt_conn_cm_info");
}
