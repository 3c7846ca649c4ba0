/* SPDX-License-Identifier: MIT */
/* The state of a connection, for programs and as text for people. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "conn/conn.h"
#include "conn/plain.h"
#include "util/err.h"
#include "util/opts.h"

static enum snt_conn_state conn_state(const struct snt_conn *conn)
{
	switch (conn->state) {
	case SNT__CONN_OVER:
		return SNT_CONN_ENDED;
	case SNT__CONN_LEAVING:
		return SNT_CONN_DISCONNECTING;
	case SNT__CONN_ESTABLISHED:
		return SNT_CONN_ESTABLISHED;
	default:
		return conn->requested ? SNT_CONN_REQUESTED : SNT_CONN_CONNECTING;
	}
}

/* Only the end that connects receives the other's verdicts. */
static bool pair_works(const struct snt__handshake *hs, const struct snt__trial *trial)
{
	return trial->ours == SNT__VERDICT_GOOD &&
	       (trial->theirs == SNT__VERDICT_GOOD || !hs->connects);
}

static void count_pairs(const struct snt_conn *conn, struct snt_conn_info *info)
{
	for (unsigned i = 0; i < conn->hs.trials.count; i++) {
		const struct snt__trial *trial = &conn->hs.trials.trial[i];

		info->pairs_tried += trial->ours != SNT__VERDICT_NONE;
		info->pairs_good += pair_works(&conn->hs, trial);
	}
}

int snt_conn_query(const struct snt_conn *conn, struct snt_conn_info *info_out)
{
	const struct snt__handshake *hs = &conn->hs;
	struct snt_conn_info info = {
		.state = conn_state(conn),
		.status = conn->state == SNT__CONN_OVER ? hs->error : 0,
		.text = hs->text,
		.authenticated = hs->proven,
		.peer_identity = hs->peer_hello.identity,
		.attempts = conn->attempts,
		.mtu = hs->plan.mtu,
		.detect_ns = 4 * hs->ping_interval,
		.setup_took_ns = conn->took_ns,
		.data = hs->theirs.data,
		.data_length = hs->theirs.data_length,
	};

	if (hs->by_peer && hs->end.data_length) {
		info.data = hs->end.data;
		info.data_length = hs->end.data_length;
	}
	if (snt__conn_is_plain(conn) && conn->carrier) {
		const struct snt__plain *plain = snt__plain_of(conn->carrier);

		info.reads_in = plain->reads_in;
		info.reads_out = plain->reads_out;
	}
	memcpy(info.peer_name, hs->theirs.name, sizeof(hs->theirs.name));
	snt__address_text((const struct sockaddr *)&conn->peer, info.peer_address);
	count_pairs(conn, &info);
	return snt__info_export(info_out, &info, sizeof(info), "struct snt_conn_info");
}

/*
 * Pairs
 */

static const char *gid_text(const struct snt_card_device *device, char *buffer)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (device->link == SNT_LINK_INFINIBAND)
		snprintf(buffer, INET6_ADDRSTRLEN, "LID %u", device->lid);
	else if (!memcmp(device->gid, mapped, sizeof(mapped)))
		inet_ntop(AF_INET, device->gid + 12, buffer, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, device->gid, buffer, INET6_ADDRSTRLEN);
	return buffer;
}

/* The verdicts on the wire equal those of the public API. */
_Static_assert((int)SNT_PAIR_NOT_TRIED == SNT__VERDICT_NONE &&
		       (int)SNT_PAIR_WORKS == SNT__VERDICT_GOOD &&
		       (int)SNT_PAIR_SILENT == SNT__VERDICT_SILENT &&
		       (int)SNT_PAIR_MTU == SNT__VERDICT_MTU &&
		       (int)SNT_PAIR_EMPTY == SNT__VERDICT_EMPTY &&
		       (int)SNT_PAIR_ONE_WAY == SNT__VERDICT_UNHEARD &&
		       (int)SNT_PAIR_RESOURCES == SNT__VERDICT_RESOURCES &&
		       (int)SNT_PAIR_KIND == SNT__VERDICT_KIND &&
		       (int)SNT_PAIR_KIND + 1 == SNT__VERDICTS,
	       "verdicts have the same numbers");

static void find_lanes(const struct snt__plan *plan, struct snt_conn_pair_info *info)
{
	info->lane = -1;
	for (unsigned i = 0; i < plan->lane_count; i++) {
		if (plan->lane[i].local != info->device ||
		    plan->lane[i].remote != info->remote_device)
			continue;
		if (!info->lane_count++)
			info->lane = (int32_t)i;
	}
}

int snt_conn_query_pair(const struct snt_conn *conn, unsigned pair,
			struct snt_conn_pair_info *info_out)
{
	const struct snt__handshake *hs = &conn->hs;
	const struct snt__trial *trial;
	struct snt_conn_pair_info info = { 0 };

	if (pair >= hs->trials.count)
		return snt__fail(ENOENT, "there are %u pairs, so none with number %u",
				 hs->trials.count, pair);
	trial = &hs->trials.trial[pair];
	info.device = trial->pair.local;
	info.remote_device = trial->pair.remote;
	info.name = conn->conn_loop->ctx->device[info.device]->name;
	gid_text(&hs->ours.device[info.device].address, info.address);
	gid_text(&hs->theirs.device[info.remote_device].address, info.remote_address);
	info.works = pair_works(hs, trial);
	info.verdict = trial->ours;
	info.peer_verdict = hs->connects ? trial->theirs : SNT_PAIR_NOT_TRIED;
	info.text = snt__verdict_text(info.verdict);
	info.peer_text = snt__verdict_text(info.peer_verdict);
	find_lanes(&hs->plan, &info);
	return snt__info_export(info_out, &info, sizeof(info),
				"struct snt_conn_pair_info");
}

/*
 * Lines
 */

struct writer {
	char *buffer;
	size_t size;
	size_t length; /* of everything, including what did not fit */
};

__attribute__((format(printf, 2, 3))) static void append_text(struct writer *writer,
							      const char *format, ...)
{
	size_t room = writer->length < writer->size ? writer->size - writer->length : 0;
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(room ? writer->buffer + writer->length : NULL, room, format,
			   args);
	va_end(args);
	if (length > 0)
		writer->length += (size_t)length;
}

static void say_devices(struct writer *writer, const struct snt_conn *conn)
{
	const struct snt__handshake *hs = &conn->hs;
	char text[INET6_ADDRSTRLEN];

	for (unsigned i = 0; i < hs->ours.device_count; i++) {
		const struct snt_device *device = conn->conn_loop->ctx->device[i];

		append_text(writer, "our device %u: %s, MTU %u, GID %s%s\n", i,
			    device->name, hs->ours.device[i].mtu,
			    snt__port(device)->gid_reason,
			    hs->ours.devices >> i & 1 ? "" : "; not to be used");
	}
	for (unsigned i = 0; i < hs->theirs.device_count; i++)
		append_text(writer, "the peer's device %u: MTU %u, GID %s%s\n", i,
			    hs->theirs.device[i].mtu,
			    gid_text(&hs->theirs.device[i].address, text),
			    hs->theirs.devices >> i & 1 ? "" : "; not to be used");
}

static void append_pairs(struct writer *writer, const struct snt__handshake *hs)
{
	for (unsigned i = 0; i < hs->trials.count; i++) {
		const struct snt__trial *trial = &hs->trials.trial[i];

		append_text(writer, "pair %u-%u: %s", trial->pair.local,
			    trial->pair.remote, snt__verdict_text(trial->ours));
		if (hs->connects && trial->theirs != trial->ours &&
		    trial->theirs != SNT__VERDICT_NONE)
			append_text(writer, "; seen from the peer: %s",
				    snt__verdict_text(trial->theirs));
		append_text(writer, "\n");
	}
}

static void say_plan(struct writer *writer, const struct snt__handshake *hs)
{
	const struct snt__plan *plan = &hs->plan;

	if (!plan->lane_count)
		return;
	append_text(writer, "MTU %u: we have %u, the peer %u%s\n", plan->mtu,
		    hs->ours.mtu, hs->theirs.mtu,
		    plan->mtu < snt__plan_mtu(&hs->ours, &hs->theirs)
			    ? ", but the network in between has less"
			    : ", and each device its own");
	append_text(writer,
		    "lanes: %u of data, %u in all: we wish for %u, the peer for %u\n",
		    plan->data_lanes, plan->lane_count, hs->ours.lanes,
		    hs->theirs.lanes);
	for (unsigned i = 0; i < plan->lane_count; i++)
		append_text(writer, "lane %u%s: our device %u, the peer's %u\n", i,
			    i < plan->data_lanes ? "" : " (no data)",
			    plan->lane[i].local, plan->lane[i].remote);
}

static void say_moments(struct writer *writer, const struct snt_conn *conn)
{
	for (unsigned i = 0; i < conn->moment_count; i++) {
		const struct snt__cm_moment *moment = &conn->moment[i];

		append_text(writer, "after %llu.%03llu ms: %s",
			    (unsigned long long)(moment->after_ns / 1000000),
			    (unsigned long long)(moment->after_ns / 1000 % 1000),
			    snt__cm_moment_text(moment->event));
		if (moment->event == SNT_CM_REJECTED)
			append_text(writer, ", reason %u", moment->reason);
		if (moment->event == SNT_CM_FAILED)
			append_text(writer, ": %s", strerror(-moment->status));
		append_text(writer, "\n");
	}
}

static void say_secret(struct writer *writer, const struct snt__handshake *hs)
{
	if (hs->plain)
		append_text(writer, "; it is a plain connection\n");
	else
		append_text(writer, "%s\n",
			    hs->proven	 ? ", which knows the secret"
			    : hs->secret ? ", which has not proved to know the secret"
					 : "; there is no secret");
}

ssize_t snt_conn_explain(const struct snt_conn *conn, char *buffer, size_t size)
{
	const struct snt__handshake *hs = &conn->hs;
	struct writer writer = { buffer, size, 0 };
	char text[SNT__ADDRESS_TEXT];

	if (size)
		buffer[0] = 0;
	append_text(&writer, "we %s; the peer is %s",
		    hs->connects ? "connect" : "accept",
		    snt__address_text((const struct sockaddr *)&conn->peer, text));
	if (hs->peer_hello.identity)
		append_text(&writer, ", identity %016llx",
			    (unsigned long long)hs->peer_hello.identity);
	say_secret(&writer, hs);
	say_moments(&writer, conn);
	say_devices(&writer, conn);
	append_pairs(&writer, hs);
	say_plan(&writer, hs);
	if (hs->ping_interval)
		append_text(
			&writer,
			"detection within %llu ms: we wish for %u, the peer for %u\n",
			(unsigned long long)(4 * hs->ping_interval / 1000000),
			hs->ours.detect_ms, hs->theirs.detect_ms);
	if (snt__handshake_over(hs))
		append_text(&writer, "over: %s\n", hs->text);
	return (ssize_t)writer.length;
}
