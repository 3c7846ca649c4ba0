/* SPDX-License-Identifier: MIT */
/* sennit ping: which lanes work between two hosts, and why the rest do not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sennit/sennit.h>

#include "command.h"
#include "commands.h"
#include "context.h"
#include "loss.h"
#include "path.h"
#include "peer.h"

#define EXPLAIN_MAX 65536
#define DEVICE_TEXT 160
/* The stream carries no data. */
#define RING SNT_STREAM_RING_MIN

struct ping_opts {
	struct context_opts context;
	struct peer_opts peer;
	bool serve;
	bool verbose;
	uint64_t count;
	uint64_t lanes;
};

/*
 * What was tried
 */

struct tried {
	struct snt_conn_pair_info *pair;
	size_t pair_count;
};

static int read_tried(struct tried *tried, const struct snt_conn *conn)
{
	struct snt_conn_pair_info pair = { .size = sizeof(pair) };

	*tried = (struct tried){ 0 };
	while (!snt_conn_query_pair(conn, (unsigned)tried->pair_count, &pair)) {
		struct snt_conn_pair_info *more =
			reallocarray(tried->pair, tried->pair_count + 1, sizeof(pair));

		if (!more) {
			free(tried->pair);
			tried->pair = NULL;
			return output_failed(NULL, "out of memory");
		}
		tried->pair = more;
		tried->pair[tried->pair_count++] = pair;
	}
	return STATUS_OK;
}

/* "rxe0 (192.168.77.1)", and "192.168.77.2" for the peer's, whose names are not
 * known. */
static const char *device_text(const struct tried *tried, bool ours, unsigned device,
			       char text[DEVICE_TEXT])
{
	snprintf(text, DEVICE_TEXT, "device %u", device);
	for (size_t i = 0; i < tried->pair_count; i++) {
		const struct snt_conn_pair_info *pair = &tried->pair[i];

		if (ours && pair->device == device)
			snprintf(text, DEVICE_TEXT, "%s (%s)", pair->name,
				 pair->address);
		if (!ours && pair->remote_device == device)
			snprintf(text, DEVICE_TEXT, "%s", pair->remote_address);
	}
	return text;
}

/* What a network engineer can do about a pair. */
static const struct {
	enum snt_pair_verdict verdict;
	const char *advice;
} advices[] = {
	{ SNT_PAIR_SILENT,
	  "no packet arrives, or no answer returns. Between networks without a "
	  "route this is expected. Otherwise check `ip route get` on both "
	  "hosts, UDP port 4791 in firewalls, the VLAN and, on RoCE, the GID "
	  "type of both ends" },
	{ SNT_PAIR_MTU,
	  "long packets are lost on the way; set the MTU of every interface "
	  "and switch port in between to at least 100 bytes more than the RDMA "
	  "MTU, or lower that of the interfaces" },
	{ SNT_PAIR_EMPTY,
	  "packets without payload are lost: a device in between drops short "
	  "frames; check its runt counters" },
	{ SNT_PAIR_ONE_WAY,
	  "a firewall, or a return path by another route; compare `ip route "
	  "get` on both hosts, and set rp_filter to 2 on hosts with several "
	  "interfaces" },
	{ SNT_PAIR_RESOURCES,
	  "a device has no resources left; `sennit info` shows its limits, "
	  "`ulimit -l` the limit of locked memory, and `rdma resource` the "
	  "current users" },
	{ SNT_PAIR_KIND,
	  "the addresses are of different kinds (IPv4, IPv6, InfiniBand); give "
	  "both devices an address of the same kind, or choose one with --gid" },
};

static const char *advice_for(enum snt_pair_verdict verdict)
{
	for (size_t i = 0; i < sizeof(advices) / sizeof(*advices); i++)
		if (advices[i].verdict == verdict)
			return advices[i].advice;
	return NULL;
}

static bool is_bad_pair(const struct snt_conn_pair_info *pair)
{
	return !pair->works && pair->verdict != SNT_PAIR_NOT_TRIED;
}

/* The peer reported a different result. */
static bool peer_disagrees(const struct snt_conn_pair_info *pair)
{
	return pair->peer_verdict != pair->verdict &&
	       pair->peer_verdict != SNT_PAIR_NOT_TRIED;
}

/* The worse of the two ends' results. */
static enum snt_pair_verdict verdict_of(const struct snt_conn_pair_info *pair)
{
	return peer_disagrees(pair) && pair->verdict == SNT_PAIR_WORKS
		       ? pair->peer_verdict
		       : pair->verdict;
}

/* A device of ours, or of the peer, is not in any pair that works. */
static bool is_left_out(const struct tried *tried, bool ours, unsigned device)
{
	bool seen = false;

	for (size_t i = 0; i < tried->pair_count; i++) {
		const struct snt_conn_pair_info *pair = &tried->pair[i];

		if ((ours ? pair->device : pair->remote_device) != device)
			continue;
		if (pair->works)
			return false;
		seen |= is_bad_pair(pair);
	}
	return seen;
}

/* Pairs across two separate networks never work, which is expected: what counts is
 * whether each device has one that does. */
static bool is_any_left_out(const struct tried *tried)
{
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		if (is_left_out(tried, true, i) || is_left_out(tried, false, i))
			return true;
	return false;
}

/*
 * Reporting
 */

static void print_pairs(const struct tried *tried)
{
	char ours[DEVICE_TEXT], theirs[DEVICE_TEXT];

	for (size_t i = 0; i < tried->pair_count; i++) {
		const struct snt_conn_pair_info *pair = &tried->pair[i];

		output_text("  %s %s - %s: %s%s%s\n",
			    pair->works		? "+"
			    : is_bad_pair(pair) ? "!"
						: " ",
			    device_text(tried, true, pair->device, ours),
			    device_text(tried, false, pair->remote_device, theirs),
			    pair->text,
			    peer_disagrees(pair) ? "; seen from the peer: " : "",
			    peer_disagrees(pair) ? pair->peer_text : "");
	}
}

/* A pair with this verdict that includes a device without a working pair; NULL:
 * none. */
static const struct snt_conn_pair_info *find_needed_pair(const struct tried *tried,
							 enum snt_pair_verdict verdict)
{
	for (size_t i = 0; i < tried->pair_count; i++) {
		const struct snt_conn_pair_info *pair = &tried->pair[i];

		if (is_bad_pair(pair) && verdict_of(pair) == verdict &&
		    (is_left_out(tried, true, pair->device) ||
		     is_left_out(tried, false, pair->remote_device)))
			return pair;
	}
	return NULL;
}

static void say_advice(const struct tried *tried)
{
	const struct snt_conn_pair_info *pair;
	char text[DEVICE_TEXT];

	if (output.json || !is_any_left_out(tried))
		return;
	output_text("devices without a working pair:\n");
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		if (is_left_out(tried, true, i))
			output_text("  %s\n", device_text(tried, true, i, text));
	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		if (is_left_out(tried, false, i))
			output_text("  the peer's %s\n",
				    device_text(tried, false, i, text));
	for (size_t i = 0; i < sizeof(advices) / sizeof(*advices); i++) {
		pair = find_needed_pair(tried, advices[i].verdict);
		if (!pair)
			continue;
		output_text("what to do where %s:\n  ",
			    pair->verdict == advices[i].verdict ? pair->text
								: pair->peer_text);
		output_fill(advices[i].advice, 2);
	}
}

#define NETWORK_TEXT 128

/* What a soft device has measured and lost while the connection was set up. */
static const char *lane_network_text(const struct snt_lane_info *lane,
				     char buffer[NETWORK_TEXT])
{
	int length = 0;

	buffer[0] = '\0';
	if (lane->round_trip_ns)
		length = snprintf(buffer, NETWORK_TEXT, ", %.0f us round trip",
				  (double)lane->round_trip_ns / 1e3);
	if (lane->resends)
		length += snprintf(buffer + length, NETWORK_TEXT - (size_t)length,
				   ", %llu packets sent again",
				   (unsigned long long)lane->resends);
	if (!lane->alive)
		snprintf(buffer + length, NETWORK_TEXT - (size_t)length, ", dead");
	return buffer;
}

static void say_lanes(const struct tried *tried, struct snt_qp *qp)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	char ours[DEVICE_TEXT], theirs[DEVICE_TEXT], network[NETWORK_TEXT];

	for (unsigned i = 0;
	     i < snt_qp_lane_count(qp) && !snt_qp_query_lane(qp, i, &lane); i++)
		output_text("  lane %u: %s - %s, by %s%s\n", i,
			    device_text(tried, true, lane.device, ours),
			    device_text(tried, false, lane.remote_device, theirs),
			    path_name(lane.path), lane_network_text(&lane, network));
}

static void say_text(const struct tried *tried, const struct snt_conn *conn,
		     const char *host)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	struct snt_qp *qp = snt_conn_qp(conn);
	char time[OUTPUT_QUANTITY];

	snt_conn_query(conn, &info);
	output_text("%s (%s): %u lane%s, MTU %u, connected in %s%s\n", host,
		    info.peer_address, snt_qp_lane_count(qp),
		    snt_qp_lane_count(qp) == 1 ? "" : "s", info.mtu,
		    output_duration(time, (double)info.setup_took_ns / 1e9),
		    info.authenticated ? ", authenticated by the secret" : "");
	say_lanes(tried, qp);
	output_text("%u of %u pairs of devices work:\n", info.pairs_good,
		    info.pairs_tried);
	print_pairs(tried);
	say_advice(tried);
}

static json_t *json_pairs(const struct tried *tried)
{
	char ours[DEVICE_TEXT], theirs[DEVICE_TEXT];
	json_t *pairs = json_array();

	for (size_t i = 0; i < tried->pair_count; i++) {
		const struct snt_conn_pair_info *pair = &tried->pair[i];
		const char *advice = advice_for(verdict_of(pair));
		json_t *object =
			json_pack("{s:s, s:s, s:b, s:b, s:s, s:i}", "ours",
				  device_text(tried, true, pair->device, ours),
				  "theirs",
				  device_text(tried, false, pair->remote_device,
					      theirs),
				  "works", pair->works, "tried",
				  pair->verdict != SNT_PAIR_NOT_TRIED, "verdict",
				  pair->text, "lanes", (int)pair->lane_count);

		if (peer_disagrees(pair))
			json_object_set_new(object, "from_peer",
					    json_string(pair->peer_text));
		if (advice)
			json_object_set_new(object, "advice", json_string(advice));
		json_array_append_new(pairs, object);
	}
	return pairs;
}

static json_t *json_left_out(const struct tried *tried, bool ours)
{
	json_t *array = json_array();
	char text[DEVICE_TEXT];

	for (unsigned i = 0; i < SNT_DEVICES_MAX; i++)
		if (is_left_out(tried, ours, i))
			json_array_append_new(array,
					      json_string(device_text(tried, ours, i,
								      text)));
	return array;
}

static json_t *json_lanes(const struct tried *tried, struct snt_qp *qp)
{
	struct snt_lane_info lane = { .size = sizeof(lane) };
	char ours[DEVICE_TEXT], theirs[DEVICE_TEXT];
	json_t *lanes = json_array();

	for (unsigned i = 0;
	     i < snt_qp_lane_count(qp) && !snt_qp_query_lane(qp, i, &lane); i++)
		json_array_append_new(lanes,
				      json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:I}",
						"path", path_name(lane.path), "ours",
						device_text(tried, true, lane.device,
							    ours),
						"theirs",
						device_text(tried, false,
							    lane.remote_device, theirs),
						"alive", lane.alive, "round_trip_ns",
						(json_int_t)lane.round_trip_ns,
						"resends", (json_int_t)lane.resends,
						"window", (json_int_t)lane.window));
	return lanes;
}

static void say_json(const struct tried *tried, const struct snt_conn *conn,
		     const char *host, const char *explanation)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	json_t *object = output_object();

	snt_conn_query(conn, &info);
	json_object_update_new(
		object,
		json_pack(
			"{s:o, s:s, s:i, s:f, s:b, s:i, s:i, s:o, s:o, s:o, s:o, s:s}",
			"host", output_string(host), "address", info.peer_address,
			"mtu", (int)info.mtu, "setup_s",
			(double)info.setup_took_ns / 1e9, "authenticated",
			info.authenticated, "pairs_good", (int)info.pairs_good,
			"pairs_tried", (int)info.pairs_tried, "left_out_ours",
			json_left_out(tried, true), "left_out_theirs",
			json_left_out(tried, false), "lanes",
			json_lanes(tried, snt_conn_qp(conn)), "pairs",
			json_pairs(tried), "explain", explanation));
	output_json(object);
}

/*
 * The end that asks
 */

/* Without a connection, what was tried matters even more. */
static int not_connected(const struct ping_opts *opts, struct snt_loop *loop,
			 struct snt_stream *stream, const char *host, int error)
{
	struct snt_stream_info info = { .size = sizeof(info) };
	struct tried tried;

	snt_stream_query(stream, &info);
	if (snt_stream_conn(stream) && !read_tried(&tried, snt_stream_conn(stream))) {
		if (tried.pair_count)
			output_text("between here and %s:\n", host);
		print_pairs(&tried);
		say_advice(&tried);
		if (output.json && tried.pair_count) {
			json_t *object = output_object();

			json_object_set_new(object, "host", output_string(host));
			json_object_set_new(object, "pairs", json_pairs(&tried));
			output_json(object);
		}
		free(tried.pair);
	}
	return peer_failed(loop, host, &opts->peer, error, info.text);
}

static int report_connection(const struct ping_opts *opts, const struct snt_conn *conn,
			     const char *host)
{
	static char explanation[EXPLAIN_MAX];
	struct tried tried;
	int status = read_tried(&tried, conn);

	snt_conn_explain(conn, explanation, sizeof(explanation));
	if (!status) {
		if (output.json)
			say_json(&tried, conn, host, explanation);
		else
			say_text(&tried, conn, host);
		if (opts->verbose)
			output_text("\n%s", explanation);
		status = is_any_left_out(&tried) ? STATUS_PARTLY : STATUS_OK;
	}
	free(tried.pair);
	return status;
}

/* Once, however many hosts there are. */
static void say_buffer_advice_once(const struct snt_ctx *ctx)
{
	static bool said;
	char text[LOSS_TEXT];
	struct loss loss;

	loss_read(ctx, &loss);
	if (!said && !output.json && loss_advice(&loss, "this host", text))
		output_fill(text, 0);
	said = true;
}

static int ping_host(const struct ping_opts *opts, struct snt_loop *loop,
		     const struct peer_secret *secret, const char *host)
{
	struct snt_stream_opts stream_opts = { .size = sizeof(stream_opts),
					       .lanes = (uint32_t)opts->lanes,
					       .recv_size = RING,
					       .send_size = RING };
	struct snt_endpoint to = { .size = sizeof(to) };
	struct snt_stream *stream;
	int ret, status;

	peer_target(&opts->peer, secret, host, &to);
	ret = snt_stream_connect(loop, &to, &stream_opts, &stream);
	if (ret)
		return peer_failed(loop, host, &opts->peer, ret, snt_err_text());
	ret = snt_stream_wait(stream, SNT_STREAM_OPEN,
			      (int64_t)(opts->peer.setup_ns + 1000000000));
	status = ret < 0 ? not_connected(opts, loop, stream, host, ret)
			 : report_connection(opts, snt_stream_conn(stream), host);
	if (ret < 0 || snt_stream_close(stream, 1000000000))
		snt_stream_destroy(stream);
	say_buffer_advice_once(snt_loop_ctx(loop));
	return status;
}

/*
 * The end that answers
 */

static uint64_t answered;

/* The stream carries no data: when the peer ends, this end does, too. */
static void on_ready(void *arg, struct snt_stream *stream, unsigned events)
{
	char byte;

	(void)arg;
	if (events & SNT_STREAM_OVER) {
		snt_stream_destroy(stream);
		answered++;
	} else if (!snt_stream_read(stream, &byte, 1)) {
		snt_stream_shutdown(stream);
	}
}

static void on_ping_accepted(void *arg, struct snt_stream_listener *listener,
			     struct snt_stream *stream)
{
	struct snt_conn_info info = { .size = sizeof(info) };
	unsigned lanes = snt_qp_lane_count(snt_conn_qp(snt_stream_conn(stream)));

	(void)arg, (void)listener;
	snt_conn_query(snt_stream_conn(stream), &info);
	output_text("%s: %u lanes, %u of %u pairs of devices work\n", info.peer_address,
		    lanes, info.pairs_good, info.pairs_tried);
	if (output.json) {
		json_t *object = output_object();

		json_object_update_new(object,
				       json_pack("{s:s, s:i, s:i, s:i}", "peer",
						 info.peer_address, "lanes", (int)lanes,
						 "pairs_good", (int)info.pairs_good,
						 "pairs_tried", (int)info.pairs_tried));
		output_json(object);
	}
	output_flush();
	snt_stream_set_ready_handler(stream, on_ready, NULL);
	on_ready(NULL, stream, 0);
}

static int serve_pings(const struct ping_opts *opts, struct snt_loop *loop,
		       const struct peer_secret *secret)
{
	struct snt_stream_opts stream = { .size = sizeof(stream),
					  .recv_size = RING,
					  .send_size = RING };
	struct snt_stream_listener_opts listen = { .size = sizeof(listen),
						   .stream = &stream,
						   .accepted = on_ping_accepted };
	struct snt_endpoint at = { .size = sizeof(at) };
	struct snt_stream_listener *listener;
	int ret;

	peer_local(&opts->peer, secret, &at);
	ret = snt_stream_listener_create(loop, &at, &listen, &listener);
	if (ret)
		return output_failed(context_remedy(ret), "cannot listen: %s",
				     snt_err_text());
	peer_catch_signals();
	peer_say_listening(listener);
	while (!peer_stopped && ret >= 0 && (!opts->count || answered < opts->count))
		ret = snt_loop_wait(loop, 1000000000);
	snt_stream_listener_destroy(listener);
	if (ret < 0)
		return output_failed(NULL, "the loop failed: %s", snt_err_text());
	return STATUS_OK;
}

static int ping_run(const void *opts_in, int count, char **argument)
{
	const struct ping_opts *opts = opts_in;
	struct peer_secret secret;
	struct snt_loop *loop;
	int status;

	if (opts->serve == (count == 1))
		return output_usage("give either --serve or the host to ping");
	status = count ? peer_check_target(&opts->peer, argument[0]) : STATUS_OK;
	if (!status)
		status = peer_secret_read(&opts->peer, &secret);
	if (status)
		return status;
	status = context_open_loop(&opts->context, &loop);
	if (!status) {
		status = opts->serve ? serve_pings(opts, loop, &secret)
				     : ping_host(opts, loop, &secret, argument[0]);
		context_close_loop(loop);
	}
	explicit_bzero(&secret, sizeof(secret));
	return status;
}

const struct command ping_command = {
	.name = "ping",
	.summary = "show which lanes work between two hosts, and why others do not",
	.arguments = "HOST | --serve",
	.description =
		"Connects to a host that runs `sennit ping --serve` or `sennit "
		"serve` and tries all pairs of devices, one of each host, with "
		"messages in both directions: short, as long as the MTU, and empty. "
		"Shows which pairs work and how lanes were assigned to them, and for "
		"the others what is wrong and what to check.\n\n"
		"Pairs across networks that are separate on purpose do not work, and "
		"need not. The exit status is 3 if a device at either end has no "
		"working pair.",
	.options =
		(const struct option_entry[]){
			{ .kind = OPTION_FLAG,
			  .name = "serve",
			  .offset = offsetof(struct ping_opts, serve),
			  .help = "answer pings until interrupted" },
			{ .kind = OPTION_NUMBER,
			  .letter = 'c',
			  .name = "count",
			  .argument = "N",
			  .offset = offsetof(struct ping_opts, count),
			  .help = "with --serve: exit after this many pings" },
			{ .kind = OPTION_NUMBER,
			  .letter = 'q',
			  .name = "lanes",
			  .argument = "N",
			  .offset = offsetof(struct ping_opts, lanes),
			  .max = SNT_LANES_MAX,
			  .standard = "0",
			  .help = "lanes to ask for; 0: one for each device" },
			{ .kind = OPTION_FLAG,
			  .letter = 'v',
			  .name = "verbose",
			  .offset = offsetof(struct ping_opts, verbose),
			  .help = "also show every choice that was made, with its reason" },
			{ .kind = OPTION_TABLE,
			  .table = peer_options,
			  .offset = offsetof(struct ping_opts, peer) },
			{ .kind = OPTION_TABLE,
			  .table = context_options,
			  .offset = offsetof(struct ping_opts, context) },
			{ 0 },
		},
	.examples =
		(const struct example[]){
			{ "sennit ping --serve", "on one host, then" },
			{ "sennit ping 10.0.0.1",
			  "on the other, with an address of its RDMA devices" },
			{ "sennit ping --carrier tcp --json node7 | jq .pairs",
			  "over ordinary TCP, for a script" },
			{ 0 },
		},
	.argument_max = 1,
	.opts_size = sizeof(struct ping_opts),
	.run = ping_run,
};
