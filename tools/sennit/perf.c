/* SPDX-License-Identifier: MIT */
/* sennit perf: options, and the roles of the two ends. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "commands.h"
#include "context.h"
#include "perf_client.h"
#include "perf_control.h"
#include "perf_error.h"
#include "perf_local.h"
#include "perf_server.h"
#include "perf_show.h"
#include "perf_sweep.h"
#include "report.h"

struct perf_opts {
	struct context_opts context;
	const char *bind;
	uint64_t port;
	bool local;

	const char *op, *test, *size, *lanes, *depth, *scheme, *fragment;
	bool all, verify, events, bidirectional, ignored;
	uint64_t messages, duration_ns, warmup_ns, runs, batch, mtu, timeout, seed;
	int balance;

	bool show_lanes;
	const char *report;
};

#define AT(member) offsetof(struct perf_opts, member)

static const struct option_entry perf_options[] = {
	{ OPTION_GROUP, .help = "Ends" },
	{ OPTION_FLAG, .name = "local", .offset = AT(local),
	  .help = "run both ends on this host, as two processes, each with half of the "
		  "processors and of --soft-addresses" },
	{ OPTION_NUMBER, 'p', "port", "PORT", AT(port), PERF_PORT_TEXT, 0, UINT16_MAX,
	  .help = "port of the server; a server with 0 takes any free one" },
	{ OPTION_TEXT, 0, "bind", "ADDRESS", AT(bind),
	  .help = "address of this host, the only one that the server listens on" },
	{ OPTION_GROUP,
	  .help = "What to measure (lists such as 64,4k,1m; ranges 1-8, 64-1m*4, "
		  "10-50+10)" },
	{ OPTION_TEXT, 'o', "op", "LIST", AT(op),
	  .values = "all|write|write-imm|read|send|fetch-add|cmp-swap|stream",
	  .help = "operations: write, write-imm, read, send, fetch-add, cmp-swap, "
		  "stream, all; default: write" },
	{ OPTION_TEXT, 0, "test", "LIST", AT(test), .values = "all|bw|lat|rate",
	  .help = "tests: bw, lat, rate, all; default: bw,lat, or bw with -b" },
	{ OPTION_TEXT, 's', "size", "LIST", AT(size),
	  .help = "message sizes; default: 64,4k,64k,1m" },
	{ OPTION_FLAG, 'a', "all", .offset = AT(all),
	  .help = "all sizes from 2 to 8m" },
	{ OPTION_TEXT, 'q', "lanes", "LIST", AT(lanes),
	  .help = "number of lanes; default: one for each device" },
	{ OPTION_TEXT, 't', "depth", "LIST", AT(depth),
	  .help = "messages in flight; default: 128" },
	{ OPTION_TEXT, 0, "scheme", "LIST", AT(scheme), .values = "all|spray|dqplb",
	  .help = "schemes: spray, dqplb, all; default: spray" },
	{ OPTION_TEXT, 0, "fragment", "LIST", AT(fragment),
	  .help = "bytes that go to one lane at once, a multiple of 64, at least 256; "
		  "default: 1m" },
	{ OPTION_CHOICE, 0, "balance", "default|turns|time", AT(balance),
	  .help = "how lanes are chosen: in turn, or the one expected to finish first" },
	{ OPTION_NUMBER, 'l', "batch", "COUNT", AT(batch), "1", 1, PERF_BATCH_MAX,
	  .help = "messages posted in one call" },
	{ OPTION_NUMBER, 'm', "mtu", "BYTES", AT(mtu), "0", 0, 4096,
	  .values = "0|256|512|1024|2048|4096",
	  .help = "path MTU; 0: that of the ports" },
	{ OPTION_NUMBER, 'u', "qp-timeout", "NUMBER", AT(timeout), "0", 0, 31,
	  .help = "ACK timeout of 4.096 us * 2^NUMBER, with up to 7 retries; 0: 14, "
		  "which is 67 ms, or 18 with --local on soft devices" },
	{ OPTION_FLAG, 'b', "bidirectional", .offset = AT(bidirectional),
	  .help = "both ends send at the same time; results of bw and rate are sums" },
	{ OPTION_FLAG, 'e', "events", .offset = AT(events),
	  .help = "sleep until there are events, instead of spinning" },
	{ OPTION_FLAG, 0, "verify", .offset = AT(verify),
	  .help = "verify every byte; filling and comparing count as time" },
	{ OPTION_NUMBER, 0, "seed", "NUMBER", AT(seed), "0",
	  .help = "seed of the bytes that are verified; 0: random" },
	{ OPTION_GROUP, .help = "Duration" },
	{ OPTION_NUMBER, 'n', "iterations", "COUNT", AT(messages), "0",
	  .help = "messages per run, instead of a duration" },
	{ OPTION_TIME, 'D', "duration", "TIME", AT(duration_ns), "300ms", 1000000,
	  PERF_DURATION_MAX_NS, .help = "duration of a run" },
	{ OPTION_TIME, 'w', "warm-up", "TIME", AT(warmup_ns), "50ms", 0,
	  UINT64_C(3600000000000),
	  .help = "warm-up before the first run of each case" },
	{ OPTION_NUMBER, 0, "runs", "COUNT", AT(runs), "3", 1, PERF_RUNS_MAX,
	  .help = "runs of each case; the result is their median" },
	{ OPTION_GROUP, .help = "Output" },
	{ OPTION_FLAG, 0, "lane-rows", .offset = AT(show_lanes),
	  .help = "also show what each lane carried, for the last size" },
	{ OPTION_TEXT, 0, "report", "FILE", AT(report),
	  .help = "also write a report with plots, one HTML file" },
	{ OPTION_FLAG, 'F', "force", .offset = AT(ignored),
	  .help = "ignored; for compatibility with perftest" },
	{ OPTION_TABLE, .offset = AT(context), .table = context_options },
	{ 0 },
};

/*
 * Options
 */

static int wrong_words(const char *option, const char *text,
		       const char *(*name)(unsigned), unsigned last)
{
	char known[256] = "all";
	size_t used = strlen(known);

	for (unsigned i = 1; i <= last && used < sizeof(known); i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, ", %s",
					 name(i));
	return output_usage("--%s: \"%s\" is not a list of these: %s", option, text,
			    known);
}

static const char *scheme_name(unsigned scheme)
{
	return perf_scheme_name(scheme);
}

static int words_of(const char *option, const char *text, const char *standard,
		    const char *(*name)(unsigned), unsigned last,
		    struct perf_list *list)
{
	if (!perf_list_words(text ? text : standard, name, last, list))
		return 0;
	return wrong_words(option, text, name, last);
}

static int numbers_of(const char *option, const char *text, const char *standard,
		      struct perf_list *list)
{
	if (!perf_list_parse(text ? text : standard, list))
		return 0;
	return output_usage(
		"--%s: \"%s\" is neither a list such as 64,4k,1m nor a range such as "
		"1-8, 64-1m*4 or 10-50+10",
		option, text);
}

static int sweep_of(const struct perf_opts *opts, struct perf_sweep *sweep)
{
	int status;

	*sweep = (struct perf_sweep){
		.sizes_given = opts->size || opts->all,
		.common = { .balance = (uint8_t)opts->balance,
			    .verify = opts->verify,
			    .events = opts->events,
			    .bidirectional = opts->bidirectional,
			    .batch = (uint32_t)opts->batch,
			    .mtu = (uint32_t)opts->mtu,
			    .timeout = (uint8_t)opts->timeout,
			    .seed = opts->seed },
	};
	status = words_of("op", opts->op, "write", perf_op_name, PERF_OP_LAST,
			  &sweep->op);
	if (!status)
		status = words_of("test", opts->test,
				  opts->bidirectional ? "bw" : "bw,lat", perf_kind_name,
				  PERF_RATE, &sweep->kind);
	if (!status)
		status = words_of("scheme", opts->scheme, "spray", scheme_name,
				  SNT_SCHEME_DQPLB, &sweep->scheme);
	if (!status)
		status = numbers_of("size", opts->all ? "2-8m" : opts->size, "64",
				    &sweep->size);
	/* The number of lanes is known once the devices are open. */
	if (!status)
		status = numbers_of("lanes", opts->lanes, "0", &sweep->lanes);
	if (!status)
		status = numbers_of("depth", opts->depth, "128", &sweep->depth);
	if (!status)
		status = numbers_of("fragment", opts->fragment, "0", &sweep->fragment);
	return status;
}

/* In the form of getaddrinfo(3). */
#define PORT_TEXT 8

static const char *port_text(const struct perf_opts *opts, char text[PORT_TEXT])
{
	snprintf(text, PORT_TEXT, "%u", (uint16_t)opts->port);
	return text;
}

/* A server would ignore options. */
static int refuse_options(const struct perf_opts *opts)
{
	if (opts->op || opts->test || opts->size || opts->lanes || opts->depth ||
	    opts->scheme || opts->fragment || opts->all || opts->verify ||
	    opts->events || opts->bidirectional || opts->messages || opts->report)
		return output_usage(
			"without a host this is the server, which does not take these "
			"options; give them to the client, or add --local");
	return 0;
}

/*
 * The client
 */

static void show_run_progress(const struct perf_case *c, unsigned run, unsigned runs,
			      uint64_t messages, uint64_t elapsed_ns)
{
	/* Of two directions one is known so far, and the other is much the same. */
	double seconds = (double)elapsed_ns / 1e9 / (c->bidirectional ? 2 : 1);
	char title[PERF_TITLE], size[PERF_SIZE_TEXT], rate[OUTPUT_QUANTITY];

	output_progress("%s, %s: %s %u of %u, %s", perf_title(title, c),
			perf_size_text(size, c->size),
			run ? "run" : "warming up for run", run ? run : 1, runs,
			output_rate(rate,
				    (double)messages * (double)c->size / seconds));
}

/* Results, and the status of the whole. */
struct session {
	struct perf_client client;
	const struct perf_opts *opts;
	struct perf_case *cases;
	struct perf_result *results;
	int count;
	unsigned failed;
	uint64_t wrong;
};

static bool ends_series(const struct session *session, int i)
{
	return i + 1 == session->count ||
	       !perf_same_series(&session->cases[i], &session->cases[i + 1]);
}

static void show_result(struct session *session, int i)
{
	const struct perf_result *result = &session->results[i];

	output_progress_end();
	if (output.json)
		output_json(perf_json(&session->client, result));
	perf_show_row(result, i ? result - 1 : NULL);
	if (session->opts->show_lanes && !*result->failure && ends_series(session, i))
		perf_show_lanes(result);
	output_flush();
}

/* -1: the server cannot be used any more. */
static int measure_cases(struct session *session)
{
	for (int i = 0; i < session->count; i++) {
		struct perf_result *result = &session->results[i];

		if (perf_client_measure(&session->client, &session->cases[i], result))
			session->failed++;
		session->wrong += perf_result_wrong(result);
		show_result(session, i);
		if (session->client.under_way) {
			session->count = i + 1;
			return output_failed(NULL, "stopped after %d case%s: %s", i + 1,
					     i ? "s" : "", perf_error_text());
		}
	}
	return STATUS_OK;
}

static void show_verified(const struct session *session)
{
	uint64_t checked = 0;
	char bytes[OUTPUT_QUANTITY];

	for (int i = 0; i < session->count; i++)
		checked += perf_result_checked(&session->results[i]);
	if (checked && !session->wrong)
		output_text("\n%s compared, all bytes correct\n",
			    output_bytes(bytes, checked));
}

static void show_note(const char *note)
{
	if (!note || output.json)
		return;
	output_text("\n");
	output_fill(note, 0);
}

static void show_notes(const struct session *session)
{
	char loss[LOSS_NOTE], advice[LOSS_TEXT];

	show_note(perf_path_note(session->results, session->count));
	show_note(perf_loss_note(session->results, session->count, loss));
	show_note(perf_buffer_note(session->results, session->count, false, advice));
	show_note(perf_buffer_note(session->results, session->count, true, advice));
}

static int conclude_session(struct session *session, int status)
{
	show_verified(session);
	show_notes(session);
	if (session->opts->report) {
		int written = report_write(session->opts->report, &session->client,
					   session->results, session->count);

		if (written)
			return output_failed(NULL, "%s: %s", session->opts->report,
					     strerror(-written));
		output_text("\nreport: %s\n", session->opts->report);
	}
	if (session->wrong) {
		output_failed("repeat with the same --seed, and check `sennit info`",
			      "%llu bytes arrived damaged",
			      (unsigned long long)session->wrong);
		return STATUS_DATA;
	}
	if (status)
		return status;
	if (!session->failed)
		return STATUS_OK;
	return session->failed == (unsigned)session->count ? STATUS_FAILED
							   : STATUS_PARTLY;
}

/* One lane for each device of the end that has more, unless a number was given. */
static int make_cases(struct session *session, struct perf_sweep *sweep)
{
	const struct perf_client *client = &session->client;
	uint32_t here = client->here.device_count, there = client->there.device_count;

	for (unsigned i = 0; i < sweep->lanes.count; i++)
		if (!sweep->lanes.value[i])
			sweep->lanes.value[i] = here > there ? here : there;
	if (sweep->common.verify && !sweep->common.seed &&
	    getrandom(&sweep->common.seed, sizeof(uint32_t), 0) < 0)
		sweep->common.seed = 1;
	session->cases = calloc(PERF_CASES_MAX, sizeof(*session->cases));
	if (!session->cases)
		return output_failed(NULL, "out of memory");
	session->count = perf_sweep_cases(sweep, session->cases);
	if (session->count < 0)
		return output_usage("more than %u cases; shorten the lists",
				    PERF_CASES_MAX);
	for (int i = 0; i < session->count; i++)
		if (perf_case_check(&session->cases[i]))
			return output_usage("%s", perf_error_text());
	session->results = calloc((size_t)session->count, sizeof(*session->results));
	return session->results ? STATUS_OK : output_failed(NULL, "out of memory");
}

static void show_ends(const struct perf_client *client)
{
	const struct perf_hello *here = &client->here, *there = &client->there;
	const char *runs = client->plan.runs == 1 ? "run" : "runs";

	output_text("client: %s, %s\nserver: %s, %s\n", here->host, here->devices,
		    there->host, there->devices);
	if (client->plan.messages)
		output_text("%u %s of %llu messages for each size\n\n",
			    client->plan.runs, runs,
			    (unsigned long long)client->plan.messages);
	else
		output_text("%u %s of %.3g s for each size\n\n", client->plan.runs,
			    runs, (double)client->plan.duration_ns / 1e9);
}

static int run_as_client(const struct perf_opts *opts,
			 const struct context_opts *devices, struct perf_sweep *sweep,
			 int control)
{
	struct session session = {
		.opts = opts,
		.client = { .end.control = control,
			    .plan = { .messages = opts->messages,
				      .duration_ns = opts->duration_ns,
				      .warmup_ns = opts->warmup_ns,
				      .runs = (unsigned)opts->runs } },
	};
	int status = context_open_loop(devices, &session.client.end.loop);

	if (status)
		return status;
	session.client.end.ctx = snt_loop_ctx(session.client.end.loop);
	if (output_shows_progress())
		session.client.progress = show_run_progress;
	if (perf_client_greet(&session.client))
		status = output_failed(NULL, "%s", perf_error_text());
	if (!status)
		status = make_cases(&session, sweep);
	if (!status) {
		show_ends(&session.client);
		status = conclude_session(&session, measure_cases(&session));
	}
	for (int i = 0; session.results && i < session.count; i++)
		perf_result_free(&session.results[i]);
	free(session.results);
	free(session.cases);
	context_close_loop(session.client.end.loop);
	return status;
}

static int be_client(const struct perf_opts *opts, struct perf_sweep *sweep,
		     const char *host)
{
	char port[PORT_TEXT];
	int control, status;

	if (perf_dial(host, port_text(opts, port), &control))
		return output_failed("start `sennit perf` there, without a host", "%s",
				     perf_error_text());
	status = run_as_client(opts, &opts->context, sweep, control);
	close(control);
	return status;
}

/*
 * The server
 */

static void accept_next(struct snt_loop *loop, int listener)
{
	int control = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;

	if (control < 0)
		return;
	setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(control, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (perf_serve_client(loop, control))
		output_note("a client: %s", perf_error_text());
	close(control);
}

static unsigned listener_port(int listener)
{
	struct sockaddr_in6 address = { 0 };
	socklen_t size = sizeof(address);

	/* The port is at the same offset in both families. */
	getsockname(listener, (struct sockaddr *)&address, &size);
	return ntohs(address.sin6_port);
}

static int be_server(const struct perf_opts *opts)
{
	struct snt_loop *loop;
	int listener, status = context_open_loop(&opts->context, &loop);
	char port[PORT_TEXT];

	if (status)
		return status;
	if (perf_listen(opts->bind, port_text(opts, port), &listener)) {
		context_close_loop(loop);
		return output_failed("choose another port with --port", "%s",
				     perf_error_text());
	}
	signal(SIGPIPE, SIG_IGN); /* the reader of its output may be gone */
	output_note("waiting for clients on port %u; press Ctrl-C to stop",
		    listener_port(listener));
	for (;;)
		accept_next(loop, listener);
}

/*
 * Both
 */

/* The client, which has the terminal, gets the error in answer to its greeting. */
static int refuse_parent(int control, int error, const char *why)
{
	struct perf_message hello;

	if (!perf_expect(control, PERF_HELLO, &hello)) {
		perf_fail(-error, "%s", why);
		perf_send_failed(control);
	}
	return STATUS_FAILED;
}

static int serve_parent(const struct context_opts *opts, int control)
{
	char why[CONTEXT_TEXT];
	struct snt_loop *loop;
	int ret = context_try(opts, &loop, why);

	if (ret)
		return refuse_parent(control, ret, why);
	ret = perf_serve_client(loop, control);
	/* A client that is gone has reported why. */
	if (ret && ret != -ECONNRESET)
		output_note("the server's end: %s", perf_error_text());
	context_close_loop(loop);
	return ret ? STATUS_FAILED : STATUS_OK;
}

/* The child is the server, because the parent has the terminal. */
static int be_both(const struct perf_opts *opts, const struct perf_shares *shares,
		   struct perf_sweep *sweep)
{
	int pair[2], status, ended = 0;
	pid_t child, parent = getpid();

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return output_failed(NULL, "socketpair: %s", strerror(errno));
	fflush(NULL);
	child = fork();
	if (child < 0)
		return output_failed(NULL, "fork: %s", strerror(errno));
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(STATUS_FAILED);
		output.json = false;
		context_hush();
		perf_take_half(true);
		close(pair[0]);
		_exit(serve_parent(&shares->server, pair[1]));
	}
	perf_take_half(false);
	close(pair[1]);
	status = run_as_client(opts, &shares->client, sweep, pair[0]);
	close(pair[0]);
	waitpid(child, &ended, 0);
	return status ? status : ended ? STATUS_FAILED : STATUS_OK;
}

static int be_local(const struct perf_opts *opts, struct perf_sweep *sweep)
{
	struct perf_shares shares;
	int status = perf_shares_make(&opts->context, &shares);

	if (!sweep->common.timeout)
		sweep->common.timeout = perf_local_timeout(&opts->context);
	if (!status)
		status = be_both(opts, &shares, sweep);
	perf_shares_free(&shares);
	return status;
}

static int run_perf(const void *arg, int count, char **argument)
{
	const struct perf_opts *opts = arg;
	struct perf_sweep sweep;
	int status;

	if (opts->local && count)
		return output_usage("--local takes no host");
	if (!opts->local && !count) {
		status = refuse_options(opts);
		return status ? status : be_server(opts);
	}
	if (count && (!*argument[0] || !opts->port))
		return output_usage(!*argument[0] ? "missing host name: \"\""
						  : "--port 0 is for servers only");
	status = sweep_of(opts, &sweep);
	if (status)
		return status;
	/* Checked now: after an hour of measuring would be too late. */
	if (opts->report && report_check(opts->report))
		return output_failed("choose another file with --report", "%s: %s",
				     opts->report, strerror(errno));
	return opts->local ? be_local(opts, &sweep)
			   : be_client(opts, &sweep, argument[0]);
}

/* Options of perftest without a counterpart of the same name. */
static const struct option_hint hints[] = {
	{ 'x', "gid-index", "of perftest is called --gid here: --gid 3" },
	{ 'R', "rdma_cm",
	  "is not needed: both ends always exchange addresses over TCP" },
	{ 0, "report_gbits", "is not needed: results are in Gb/s" },
	{ 'i', "ib-port",
	  "of perftest is a part of --devices here: --devices mlx5_0:2" },
	{ 'c', "connection", "is not needed: RC is the only transport" },
	{ 'N', "noPeak",
	  "is not needed: the result is a median and a spread, not a peak" },
	{ 0 },
};

static const struct example examples[] = {
	{ "sennit perf", "the server, on one host" },
	{ "sennit perf 10.0.0.1", "the client, on the other: writes of several sizes" },
	{ "sennit perf --local -q 1-8 -s 1m --test bw",
	  "how bandwidth grows with lanes" },
	{ "sennit perf --local --op all --verify",
	  "all operations, every byte verified" },
	{ "sennit perf 10.0.0.1 -a --report out.html",
	  "all sizes, as a report with plots" },
	{ 0 },
};

const struct command perf_command = {
	.name = "perf",
	.summary = "measure bandwidth, latency and message rate between two hosts",
	.arguments = "[HOST]",
	.description =
		"Without a host it is the server, which serves one client after the "
		"other. All options except those of devices and the port belong to "
		"the client, which sends them to the server. Options that perftest "
		"has too have the same letters.\n\n"
		"bw: --depth messages are in flight. lat: one message is in flight; "
		"the result is half of the round trip for write-imm, send and "
		"stream, and the time to completion, which is a whole round trip, "
		"for all others. rate: as bw, with messages posted in batches.\n\n"
		"Gb/s are 10^9 bits of payload per second. The result is the median "
		"of all runs; its spread is half of the distance between their "
		"quartiles. Percentiles are of all messages of all runs. CPU is the "
		"processor time of client and server, where 100% is one processor. "
		"Wake-ups are how often a thread slept and was woken, per message.\n\n"
		"The server checks everything that it receives, but serves every "
		"client: run it where only trusted hosts can reach it.",
	.options = perf_options,
	.examples = examples,
	.hints = hints,
	.argument_max = 1,
	.opts_size = sizeof(struct perf_opts),
	.run = run_perf,
};
