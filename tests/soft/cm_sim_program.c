/* SPDX-License-Identifier: MIT */
/* What programs do with connections, and what they may be told. */
#include "cm_sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct snt__cm_table *const table = &snt__cm_soft;

/*
 * Private data: a token, and bytes that follow from it
 */

static uint8_t data_byte(const struct token *token, size_t at)
{
	return (uint8_t)(token->end * 31 + token->peer * 7 + at);
}

static void write_data(const struct token *token, uint8_t *data, size_t size)
{
	memcpy(data, token, sizeof(*token));
	for (size_t i = sizeof(*token); i < size; i++)
		data[i] = data_byte(token, i);
}

/* False: it is nothing that a program sends. */
static bool read_data(const struct snt__cm_event *event, size_t size,
		      struct token *token)
{
	bool good = event->data_length == size;

	memcpy(token, event->data, sizeof(*token));
	for (size_t i = sizeof(*token); i < size; i++)
		good &= event->data[i] == data_byte(token, i);
	return good && token->end < world.ends;
}

/*
 * Ends
 */

static struct end *new_end(struct host *host, struct snt__cm_id *id, enum stage stage)
{
	struct end *end = &world.end[world.ends];

	*end = (struct end){
		.stage = stage,
		.index = world.ends++,
		.host = host,
		.life = host->life,
		.id = id,
		.peer = NOBODY,
		.due = UINT64_MAX,
	};
	id->user = end;
	return end;
}

static struct device *device_of(const struct end *end)
{
	return &end->host->device[end->id->device];
}

static struct end *peer_of(const struct end *end)
{
	return end->peer == NOBODY ? NULL : &world.end[end->peer];
}

/* The QP first. */
void destroy_end(struct end *end)
{
	if (end->qp)
		snt__soft_control()->destroy_qp(end->qp);
	end->qp = NULL;
	table->destroy(end->id);
	end->id = NULL;
	end->left = true;
	end->stage = DESTROYED;
	end->due = UINT64_MAX;
}

static void think(struct end *end, uint64_t longest)
{
	uint64_t ns = has(SLOW) && chance(20) ? dice(3000) * MS : dice(longest);

	end->due = snt__sim_now(world.sim) + (world.settling ? 0 : ns);
}

static uint32_t new_qpn(struct end *end)
{
	struct device *device;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = MESSAGE },
	};

	if (!world.real_qps)
		return ++end->host->qpn;
	device = device_of(end);
	attr.send_cq = attr.recv_cq = device->cq;
	if (snt__soft_control()->create_qp(device->sim->adopted->pd, &attr, &end->qp))
		return 0;
	end->qp->qp_context = end;
	return end->qp->qp_num;
}

static int move_qp(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;

	if (!end->qp)
		return 0;
	if (table->qp_attr(end->id, &attr, &mask))
		return wrong(end, "no attributes for a QP");
	attr.timeout = 12;
	if (snt__soft_control()->modify_qp(end->qp, &attr, mask))
		return wrong(end, "attributes that do not fit, of state %u", state);
	return 0;
}

static void post_recv(struct end *end)
{
	struct device *device = device_of(end);
	struct ibv_sge sge = { .addr = (uintptr_t)device->memory[end->index],
			       .length = MESSAGE,
			       .lkey = device->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = end->index, .sg_list = &sge, .num_sge = 1 },
			   *bad;

	if (end->qp)
		ibv_post_recv(end->qp, &wr, &bad);
}

static void post_send(struct end *end)
{
	struct token token = { .end = end->index, .peer = end->peer };
	uint8_t data[MESSAGE];
	struct ibv_sge sge = { .addr = (uintptr_t)data, .length = MESSAGE };
	struct ibv_send_wr wr = { .wr_id = ENDS_MAX + end->index,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_INLINE },
			   *bad;

	if (!end->qp)
		return;
	write_data(&token, data, sizeof(data));
	end->sent = !ibv_post_send(end->qp, &wr, &bad);
}

static struct snt__cm_param param_of(struct end *end, uint8_t *data, size_t size)
{
	struct token token = { .end = end->index, .peer = end->peer };
	struct snt__cm_param param = {
		.data = data,
		.data_length = (uint8_t)size,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	write_data(&token, data, size);
	param.qpn = new_qpn(end);
	param.responder_resources = (uint8_t)dice(20);
	param.initiator_depth = (uint8_t)dice(20);
	param.mtu = (uint8_t)dice(6);
	return param;
}

/* A call that came too late: the end of it must be there already. */
static int too_late(struct end *end, int ret, const char *call)
{
	if (ret != -ENOTCONN)
		return wrong(end, "%s: %d", call, ret);
	if (serve_all())
		return -1;
	return end->stage == OVER ? 0 : wrong(end, "%s: refused for no reason", call);
}

/*
 * Actions
 */

static struct sockaddr_storage address_of(unsigned host, unsigned device, uint16_t port)
{
	struct sockaddr_storage storage = { 0 };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	four.sin_addr.s_addr = htonl(10u << 24 | host << 8 | (device + 1));
	six.sin6_addr.s6_addr[0] = 0xfd;
	six.sin6_addr.s6_addr[14] = (uint8_t)host;
	six.sin6_addr.s6_addr[15] = (uint8_t)(device + 1);
	if (world.ipv6)
		memcpy(&storage, &six, sizeof(six));
	else
		memcpy(&storage, &four, sizeof(four));
	return storage;
}

/* To some host, perhaps itself; to a port without a listener, or a host that is not
 * there. */
int start_connect(void)
{
	struct host *from = &world.host[dice(world.hosts)];
	unsigned to = dice(world.hosts + chance(5));
	unsigned devices = to < world.hosts ? world.host[to].devices : 1;
	unsigned device = dice(devices);
	struct sockaddr_storage target =
		address_of(to, device, chance(5) ? PORT + 1 : PORT);
	struct sockaddr_storage source =
		address_of(from->index, dice(from->devices), 0);
	struct snt__cm_id *id;
	int ret;

	/* Requests need ends as well. */
	if (from->dead || world.ends >= ENDS_MAX / 2 - 2)
		return 0;
	ret = table->resolve(from->cm, chance(50) ? (struct sockaddr *)&source : NULL,
			     (struct sockaddr *)&target, 1000, &id);
	if (ret == -ENOBUFS && has(LIMIT))
		return 0;
	if (ret)
		return wrong(NULL, "resolve: %d", ret);
	new_end(from, id, RESOLVING);
	return 0;
}

static int act_connect(struct end *end)
{
	uint8_t data[SNT__CM_REQUEST_DATA];
	struct snt__cm_param param = param_of(end, data, sizeof(data));

	if (move_qp(end, IBV_QPS_INIT))
		return -1;
	post_recv(end);
	if (table->connect(end->id, &param))
		return wrong(end, "connect");
	end->stage = CONNECTING;
	end->since = snt__sim_now(world.sim);
	if (has(ABANDON) && chance(20))
		end->due = end->since + dice(200 * MS);
	return 0;
}

static int act_reject(struct end *end)
{
	struct token token = { .end = end->index, .peer = end->peer };
	uint8_t data[SNT__CM_REJECT_DATA];
	int ret;

	write_data(&token, data, sizeof(data));
	ret = table->reject(end->id, data, sizeof(data));
	if (ret)
		return too_late(end, ret, "reject");
	end->rejected = true;
	end->stage = OVER;
	end->finals++;
	think(end, 10 * MS);
	return 0;
}

static int act_accept(struct end *end)
{
	uint8_t data[SNT__CM_RESPONSE_DATA];
	struct snt__cm_param param = param_of(end, data, sizeof(data));
	int ret;

	if (move_qp(end, IBV_QPS_INIT))
		return -1;
	post_recv(end);
	if (move_qp(end, IBV_QPS_RTR) || move_qp(end, IBV_QPS_RTS))
		return -1;
	ret = table->accept(end->id, &param);
	if (ret)
		return too_late(end, ret, "accept");
	end->accepted = true;
	end->stage = ACCEPTED;
	end->since = snt__sim_now(world.sim);
	if (has(ABANDON) && chance(20))
		end->due = end->since + dice(200 * MS);
	return 0;
}

static int act_establish(struct end *end)
{
	int ret;

	if (move_qp(end, IBV_QPS_RTR) || move_qp(end, IBV_QPS_RTS))
		return -1;
	ret = table->establish(end->id);
	if (ret)
		return too_late(end, ret, "establish");
	end->established = true;
	end->stage = ESTABLISHED;
	think(end, 1500 * MS);
	if (chance(25))
		end->due = UINT64_MAX;
	post_send(end);
	return 0;
}

static int act_disconnect(struct end *end)
{
	int ret = table->disconnect(end->id);

	if (ret)
		return wrong(end, "disconnect: %d", ret);
	end->left = true;
	end->stage = CLOSING;
	end->since = snt__sim_now(world.sim);
	if (has(ABANDON) && chance(20))
		end->due = end->since + dice(100 * MS);
	return 0;
}

static int act(struct end *end)
{
	bool leaves = has(ABANDON) && chance(15);

	end->due = UINT64_MAX;
	if (leaves || end->stage == OVER || end->stage == CONNECTING ||
	    end->stage == ACCEPTED || end->stage == CLOSING) {
		destroy_end(end);
		return 0;
	}
	if ((end->stage == REQUESTED || end->stage == RESPONDED) && has(REFUSE) &&
	    chance(30))
		return act_reject(end);
	if (end->stage == RESOLVING)
		return act_connect(end);
	if (end->stage == REQUESTED)
		return act_accept(end);
	if (end->stage == RESPONDED)
		return act_establish(end);
	if (chance(20)) {
		destroy_end(end);
		return 0;
	}
	return act_disconnect(end);
}

uint64_t next_due(void)
{
	uint64_t at = UINT64_MAX;

	for (unsigned i = 0; i < world.ends; i++)
		if (world.end[i].due < at)
			at = world.end[i].due;
	return at;
}

int act_when_due(void)
{
	for (unsigned i = 0; i < world.ends; i++)
		if (world.end[i].due <= snt__sim_now(world.sim) && act(&world.end[i]))
			return -1;
	return 0;
}

/*
 * Events
 */

static int on_request(struct host *host, const struct snt__cm_event *event)
{
	struct token token;
	struct end *end, *client;

	if (!read_data(event, SNT__CM_REQUEST_DATA, &token) || token.peer != NOBODY)
		return wrong(NULL, "a request that was not sent");
	client = &world.end[token.end];
	if (event->listener != host->listener || client->passive)
		return wrong(client, "its request is somewhere else");
	for (unsigned i = 0; i < world.ends; i++)
		if (world.end[i].passive && world.end[i].peer == token.end &&
		    world.end[i].host == host && world.end[i].life == host->life &&
		    !has_evicted(host))
			return wrong(&world.end[i], "it is asked twice");
	if (world.ends == ENDS_MAX)
		return wrong(client, "more requests than there can be");
	end = new_end(host, event->id, REQUESTED);
	end->passive = true;
	end->peer = token.end;
	think(end, 20 * MS);
	return 0;
}

static int on_response(struct end *end, const struct snt__cm_event *event)
{
	struct token token;

	if (end->stage != CONNECTING ||
	    !read_data(event, SNT__CM_RESPONSE_DATA, &token) ||
	    token.peer != end->index || !world.end[token.end].accepted ||
	    world.end[token.end].peer != end->index)
		return wrong(end, "a response that was not given");
	end->peer = token.end;
	end->stage = RESPONDED;
	think(end, 20 * MS);
	return 0;
}

/* Only if the peer has said so, ever. */
static int on_established(struct end *end)
{
	if (end->stage != ACCEPTED || !peer_of(end)->established ||
	    peer_of(end)->peer != end->index)
		return wrong(end, "established without a peer");
	end->told_established = true;
	end->stage = ESTABLISHED;
	think(end, 1500 * MS);
	if (chance(25))
		end->due = UINT64_MAX;
	post_send(end);
	return 0;
}

/* Has anything happened that may end a connection against the will of both? */
static bool may_break(const struct end *end)
{
	const struct end *peer = peer_of(end);

	return world.disturbed || !peer || given_up(end->host) ||
	       given_up(peer->host) || has_evicted(end->host) ||
	       has_evicted(peer->host);
}

static bool may_disconnect(const struct end *end)
{
	const struct end *peer = peer_of(end);

	return end->left || may_break(end) || peer->left || peer->crashed ||
	       peer->failed || peer->rejected;
}

/* Without faults, some end must want it. */
static bool may_reject(const struct end *end, const struct snt__cm_event *event)
{
	const struct end *peer = peer_of(end);

	if (event->reason == SNT__CM_REASON_NOBODY_LISTENS ||
	    event->reason == SNT__CM_REASON_NO_RESOURCES)
		return !end->passive;
	/* Of an active one it is not known which end has got its request. And one copy
	 * of it may have been turned away, without a record, where another was
	 * taken. */
	return !peer || may_break(end) || peer->left || peer->rejected ||
	       peer->turned_away || peer->failed || peer->crashed;
}

static int on_rejected(struct end *end, const struct snt__cm_event *event)
{
	static const uint8_t zeros[SNT__CM_REJECT_DATA];
	struct token token;

	if (!may_reject(end, event))
		return wrong(end, "rejected without a peer: %u", event->reason);
	end->turned_away = event->reason != SNT__CM_REASON_CONSUMER;
	if (memcmp(event->data, zeros, sizeof(zeros)) == 0)
		return 0;
	if (!read_data(event, SNT__CM_REJECT_DATA, &token) ||
	    token.peer != end->index || !world.end[token.end].rejected ||
	    event->reason != SNT__CM_REASON_CONSUMER)
		return wrong(end, "rejected with a reason that was not given");
	return 0;
}

/* Time runs out only where messages get lost, or programs are slow. */
static int on_failed(struct end *end, const struct snt__cm_event *event)
{
	const struct end *peer = peer_of(end);

	end->failed = true;
	if (event->status != -ETIMEDOUT)
		return wrong(end, "failed with %d", event->status);
	if (has(LOSS) || has(CORRUPT) || world.disturbed)
		return 0;
	if (!end->passive) /* the host that is not there, or too much of everything */
		return 0;
	return peer && (peer->left || has(LIMIT)) ? 0 : wrong(end, "failed");
}

static int on_final(struct end *end, const struct snt__cm_event *event)
{
	int ret = 0;

	if (end->finals++)
		return wrong(end, "over twice");
	if (event->type == SNT__CM_EVENT_REJECTED)
		ret = on_rejected(end, event);
	else if (event->type == SNT__CM_EVENT_FAILED)
		ret = on_failed(end, event);
	else if (!may_disconnect(end))
		ret = wrong(end, "disconnected without a peer");
	end->stage = OVER;
	think(end, 10 * MS);
	return ret;
}

static int on_event(struct host *host, const struct snt__cm_event *event)
{
	struct end *end = event->id->user;

	if (world.plan->verbose)
		printf("# %llu: host %u end %d: event %u, reason %u\n",
		       (unsigned long long)snt__sim_now(world.sim), host->index,
		       event->type == SNT__CM_EVENT_REQUEST ? -1 : (int)end->index,
		       event->type, event->reason);
	if (event->type == SNT__CM_EVENT_REQUEST)
		return on_request(host, event);
	if (end->host != host || end->life != host->life || end->id != event->id)
		return wrong(end, "an event of another connection");
	if (event->type == SNT__CM_EVENT_RESPONSE)
		return on_response(end, event);
	if (event->type == SNT__CM_EVENT_ESTABLISHED)
		return on_established(end);
	if (event->type >= SNT__CM_EVENT_REJECTED)
		return on_final(end, event);
	if (event->type != SNT__CM_EVENT_RESOLVED || end->stage != RESOLVING)
		return wrong(end, "event %u", event->type);
	think(end, 10 * MS);
	return 0;
}

/* Messages over QPs: from the right peer, or not at all. */
static int on_completion(struct device *device, const struct ibv_wc *wc)
{
	struct snt__cm_event event = { .data_length = MESSAGE };
	struct token token;
	struct end *end;

	if (wc->wr_id >= ENDS_MAX || wc->status)
		return 0;
	end = &world.end[wc->wr_id];
	memcpy(event.data, device->memory[wc->wr_id], MESSAGE);
	if (!read_data(&event, MESSAGE, &token) || token.peer != end->index ||
	    (end->peer != NOBODY && token.end != end->peer))
		return wrong(end, "a message of another connection");
	end->got = true;
	if (!end->id)
		return 0;
	/* Before its RTU, perhaps. */
	return table->notify(end->id);
}

static int poll_devices(struct host *host)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < host->devices; i++)
		while (ibv_poll_cq(host->device[i].cq, 1, &wc) > 0)
			if (on_completion(&host->device[i], &wc))
				return -1;
	return 0;
}

int serve_all(void)
{
	struct snt__cm_event event;

	for (unsigned i = 0; i < world.hosts; i++) {
		struct host *host = &world.host[i];

		if (host->dead)
			continue;
		if (world.real_qps && poll_devices(host))
			return -1;
		while (!table->next_event(host->cm, &event))
			if (on_event(host, &event))
				return -1;
	}
	return 0;
}
