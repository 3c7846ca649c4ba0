/* SPDX-License-Identifier: MIT */
#include "traffic.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* What is less likely than this does not happen in all the seeds that anybody tries. */
#define ONCE_IN 1e-9

/*
 * What memory tells
 */

/* A place that was written again later may show the bytes of either. */
static bool write_seen(const struct end *end, int index)
{
	const struct send *send = &end->send[index];
	const unsigned char *bytes = end->peer->memory + send->remote;

	for (uint32_t at = 0; at < send->length; at++) {
		int i = index;

		while (i >= 0 &&
		       (at >= end->send[i].length || bytes[at] != pattern(end, i, at)))
			i = end->send[i].over;
		if (i < 0)
			return false;
	}
	return true;
}

/* All WRITEs before this WR are there, since something after them is. */
static int check_effects(struct world *world, struct end *end, int until)
{
	for (; end->seen < until; end->seen++) {
		const struct send *send = &end->send[end->seen];

		if (is_write(send) && !send->bad && !send->failed &&
		    !write_seen(end, end->seen))
			return wrong(world, "%u.%u: WR %d is done, but WRITE %d is not",
				     end->pair, end->side, until, end->seen);
	}
	return 0;
}

/*
 * Sends
 */

static int check_read(struct world *world, const struct end *end, int index)
{
	const struct send *send = &end->send[index];
	uint32_t at = 0;

	for (unsigned i = 0; i < send->pieces; i++)
		for (uint32_t j = 0; j < send->piece_length[i]; j++, at++) {
			uint8_t due = send->source >= 0
					      ? pattern(end, send->source, at)
					      : source_byte(end->peer,
							    send->remote - SOURCE + at);

			if (end->memory[send->piece[i] + j] != due)
				return wrong(world,
					     "%u.%u: READ %d differs at %u of %u",
					     end->pair, end->side, index, at,
					     send->length);
		}
	return 0;
}

static int check_atomic(struct world *world, struct end *end, int index)
{
	const struct send *send = &end->send[index];
	struct device *there = end->peer->device;
	uint64_t found;

	memcpy(&found, end->memory + send->piece[0], sizeof(found));
	if (!send->shared)
		return found == send->before
			       ? 0
			       : wrong(world,
				       "%u.%u: atomic %d found 0x%llx, not 0x%llx",
				       end->pair, end->side, index,
				       (unsigned long long)found,
				       (unsigned long long)send->before);
	there->adds_done++;
	if (found >= (uint64_t)there->adds || there->found[found])
		return wrong(world,
			     "%u.%u: FETCH_ADD %d found %llu, of %d, twice or too much",
			     end->pair, end->side, index, (unsigned long long)found,
			     there->adds);
	there->found[found] = true;
	return 0;
}

/* From now on it may not be read or written. */
static void retire(struct end *end, struct send *send)
{
	send->done = true;
	for (unsigned i = 0; i < send->pieces; i++)
		memset(end->memory + send->piece[i], SPOILED, send->piece_length[i]);
}

void abandon(struct end *end)
{
	for (; end->sends_done < end->sends; end->sends_done++) {
		end->send[end->sends_done].failed = true;
		retire(end, &end->send[end->sends_done]);
	}
	for (; end->recvs_done < end->recvs; end->recvs_done++) {
		struct recv *recv = &end->recv[end->recvs_done];

		recv->done = true;
		memset(recv->bytes, SPOILED, recv->room);
	}
}

/* Once it is known that a WRITE is there, its place is the peer's again: nothing may be
 * written there any more. */
static void consume(struct end *end, struct send *send)
{
	if (!is_write(send) || send->over >= 0 || send->read_back)
		return;
	send->consumed = true;
	memset(end->peer->memory + send->remote, SPOILED, send->length);
}

/* What a window has become by a WR that succeeded. */
static void move_window(struct end *end, const struct send *send)
{
	if (send->opcode == IBV_WR_BIND_MW)
		end->window = BOUND;
	else if (send->opcode == IBV_WR_LOCAL_INV)
		end->window = UNBOUND;
	else if (send->opcode == IBV_WR_SEND_WITH_INV)
		end->peer->window = UNBOUND;
}

static int check_success(struct world *world, struct end *end, int index)
{
	struct send *send = &end->send[index];
	int ret = 0;

	if (send->bad)
		return wrong(world, "%u.%u: bad WR %d succeeded", end->pair, end->side,
			     index);
	if (check_effects(world, end, index + 1))
		return -1;
	if (send->opcode == IBV_WR_RDMA_READ)
		ret = check_read(world, end, index);
	else if (is_atomic(send))
		ret = check_atomic(world, end, index);
	move_window(end, send);
	retire(end, send);
	consume(end, send);
	return ret;
}

/* How likely it is at most that a packet, or the answer to it, gets lost; not counting
 * queues that are full. */
static double loss(const struct end *end)
{
	return (end->device->lost + end->peer->device->lost) / 1e6;
}

/* A WR that the peer refuses is told why, once, if nothing else is wrong with either.
 * If that overtakes the answer to an earlier READ it comes to nothing. */
static bool must_be_told(const struct world *world, const struct end *end,
			 const struct send *send)
{
	const struct end *peer = end->peer;

	if (has(world, BANDWIDTH) || has(world, REORDER) || loss(end) > 0)
		return false;
	return send->bad && !peer->in_error && !peer->sent_bad && peer->rnr_retry == 7;
}

/* With few retries anything may use them up: a copy of a WR that was not taken may be,
 * and then what follows it is missing. With many they are used up by loss alone, if so
 * many packets in a row, or the answers to them, can be lost; one retry less for what
 * was only late. */
static bool retries_may_run_out(const struct world *world, const struct end *end)
{
	double all = 1;

	if (has(world, BANDWIDTH))
		return true;
	if (end->retry_cnt < 7)
		return loss(end) > 0 || has(world, REORDER) || has(world, DUPLICATE);
	for (unsigned i = 0; i < 7; i++)
		all *= loss(end);
	return all > ONCE_IN;
}

/* May the first WR that fails do so with this status? */
static bool may_fail(const struct world *world, const struct end *end,
		     const struct send *send, enum ibv_wc_status status)
{
	const struct end *peer = end->peer;

	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
		return end->in_error || end->device->killed || peer->sent_bad;
	case IBV_WC_RETRY_EXC_ERR:
		return world->harmed || retries_may_run_out(world, end) ||
		       (world_state(peer) == IBV_QPS_ERR &&
			!must_be_told(world, end, send));
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return end->rnr_retry < 7 && takes_receive(send);
	case IBV_WC_REM_ACCESS_ERR:
		return send->bad >= BAD_KEY && send->bad <= BAD_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
		return send->bad == BAD_LENGTH || send->bad == BAD_ALIGNMENT;
	default:
		return false;
	}
}

static int check_failure(struct world *world, struct end *end, int index,
			 enum ibv_wc_status status)
{
	struct send *send = &end->send[index];

	if (end->failed ? status != IBV_WC_WR_FLUSH_ERR
			: !may_fail(world, end, send, status))
		return wrong(world, "%u.%u: WR %d (opcode %u, bad %u): %s", end->pair,
			     end->side, index, send->opcode, send->bad,
			     ibv_wc_status_str(status));
	end->failed = send->failed = true;
	retire(end, send);
	return 0;
}

/* Those without a report before this one have succeeded. */
static int pass_over(struct world *world, struct end *end, int until)
{
	for (; end->sends_done < until; end->sends_done++) {
		if (end->send[end->sends_done].signalled || end->failed)
			return wrong(world, "%u.%u: WR %d is not reported, but %d is",
				     end->pair, end->side, end->sends_done, until);
		if (check_success(world, end, end->sends_done))
			return -1;
	}
	return 0;
}

static bool opcode_fits(const struct send *send, enum ibv_wc_opcode opcode)
{
	switch (send->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return opcode == IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return opcode == IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return opcode == IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return opcode == IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return opcode == IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return opcode == IBV_WC_LOCAL_INV;
	default:
		return opcode == IBV_WC_SEND;
	}
}

/* Of these byte_len says something. */
static bool brings_bytes(const struct send *send)
{
	return send->opcode == IBV_WR_RDMA_READ || is_atomic(send);
}

static int check_send(struct world *world, struct end *end, const struct ibv_wc *wc)
{
	uint64_t id = ID_SEND | end->pair << 20 | end->side << 16;
	int index = (int)(wc->wr_id - id);

	if (wc->wr_id - id >= (uint64_t)end->sends || index < end->sends_done)
		return wrong(world, "%u.%u: wr_id 0x%llx, unknown or again", end->pair,
			     end->side, (unsigned long long)wc->wr_id);
	if (pass_over(world, end, index))
		return -1;
	end->sends_done = index + 1;
	if (wc->status != IBV_WC_SUCCESS)
		return check_failure(world, end, index, wc->status);
	if (end->failed || !end->send[index].signalled)
		return wrong(world,
			     "%u.%u: WR %d succeeded after a failure, or "
			     "unsignalled",
			     end->pair, end->side, index);
	if (!opcode_fits(&end->send[index], wc->opcode))
		return wrong(world, "%u.%u: WR %d: opcode %d", end->pair, end->side,
			     index, wc->opcode);
	if (brings_bytes(&end->send[index]) && wc->byte_len != end->send[index].length)
		return wrong(world, "%u.%u: WR %d: %u bytes", end->pair, end->side,
			     index, wc->byte_len);
	return check_success(world, end, index);
}

/*
 * Receives
 */

static int check_bytes(struct world *world, const struct end *end, int index,
		       const struct recv *recv)
{
	const struct send *send = &end->peer->send[index];
	uint32_t length = is_message(send) ? send->length : 0;

	for (uint32_t at = 0; at < recv->room; at++) {
		uint8_t due = at < length ? pattern(end->peer, index, at) : EMPTY;

		if (recv->bytes[at] != due)
			return wrong(world, "%u.%u: message %d differs at %u of %u",
				     end->pair, end->side, index, at, length);
	}
	return 0;
}

/* Is what came along what the message had? */
static bool is_told(const struct send *send, const struct ibv_wc *wc)
{
	switch (send->opcode) {
	case IBV_WR_SEND:
		return !(wc->wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV));
	case IBV_WR_SEND_WITH_INV:
		return wc->wc_flags & IBV_WC_WITH_INV &&
		       wc->invalidated_rkey == send->imm;
	default:
		return wc->wc_flags & IBV_WC_WITH_IMM &&
		       wc->imm_data == htonl(send->imm);
	}
}

/* The peer's WRs that take a receive arrive in order, none is left out. */
static int check_arrival(struct world *world, struct end *end, const struct recv *recv,
			 const struct ibv_wc *wc)
{
	struct end *peer = end->peer;
	const struct send *send;
	bool write;
	int index;

	if (peer->arrived == peer->consumers)
		return wrong(world, "%u.%u: a receive that was not sent", end->pair,
			     end->side);
	index = peer->consumer[peer->arrived++];
	send = &peer->send[index];
	write = send->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	if (send->bad)
		return wrong(world, "%u.%u: bad WR %d arrived", end->pair, end->side,
			     index);
	if (wc->opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
	    wc->byte_len != send->length || !is_told(send, wc))
		return wrong(world,
			     "%u.%u: WR %d arrived with opcode %d, %u bytes, "
			     "flags 0x%x, imm 0x%x",
			     end->pair, end->side, index, wc->opcode, wc->byte_len,
			     wc->wc_flags, ntohl(wc->imm_data));
	if (check_effects(world, peer, index + 1))
		return -1;
	return check_bytes(world, end, index, recv);
}

static struct recv *find_recv(struct end *end, uint64_t wr_id)
{
	struct device *device = end->device;
	uint64_t id = ID_RECV | end->pair << 20 | end->side << 16;

	if (end->srq) {
		wr_id -= ID_RECV;
		if (wr_id >= (uint64_t)device->recvs || device->recv[wr_id].done)
			return NULL;
		device->recvs_done++;
		return &device->recv[wr_id];
	}
	if (end->recvs_done == end->recvs || wr_id != id + end->recvs_done)
		return NULL;
	return &end->recv[end->recvs_done++];
}

static bool receive_may_fail(const struct end *end, enum ibv_wc_status status)
{
	if (world_state(end) != IBV_QPS_ERR)
		return false;
	return status == IBV_WC_WR_FLUSH_ERR ||
	       (status == IBV_WC_LOC_LEN_ERR && end->peer->sent_bad);
}

static int check_recv(struct world *world, struct end *end, const struct ibv_wc *wc)
{
	struct recv *recv = find_recv(end, wc->wr_id);
	int ret = 0;

	if (!recv)
		return wrong(world, "%u.%u: receive 0x%llx out of order or unknown",
			     end->pair, end->side, (unsigned long long)wc->wr_id);
	if (wc->status == IBV_WC_SUCCESS)
		ret = check_arrival(world, end, recv, wc);
	else if (!receive_may_fail(end, wc->status))
		ret = wrong(world, "%u.%u: a receive failed: %s", end->pair, end->side,
			    ibv_wc_status_str(wc->status));
	recv->done = true;
	end->recv_failed |= wc->status != IBV_WC_SUCCESS;
	memset(recv->bytes, SPOILED, recv->room);
	return ret;
}

static struct end *find_end(struct world *world, const struct device *device,
			    uint32_t qp_num)
{
	for (unsigned i = 0; i < world->pairs * 2; i++) {
		struct end *end = &world->end[i / 2][i % 2];

		if (end->device == device && end->qp->qp_num == qp_num)
			return end;
	}
	return NULL;
}

static bool is_recv(const struct ibv_wc *wc)
{
	return wc->wr_id >> 48 == ID_RECV >> 48;
}

bool is_loud(struct world *world, const struct device *device, const struct ibv_wc *wc)
{
	const struct end *end = find_end(world, device, wc->qp_num);
	const struct end *peer = end ? end->peer : NULL;

	if (wc->status != IBV_WC_SUCCESS)
		return true;
	return peer && is_recv(wc) && peer->arrived < peer->consumers &&
	       peer->send[peer->consumer[peer->arrived]].flags & IBV_SEND_SOLICITED;
}

int check_completion(struct world *world, struct device *device,
		     const struct ibv_wc *wc)
{
	struct end *end = find_end(world, device, wc->qp_num);

	if (!end)
		return wrong(world, "a completion of QP %u, which %s does not have",
			     wc->qp_num, device->sim->name);
	trace(world, "%u.%u: wr_id 0x%llx %s", end->pair, end->side,
	      (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
	search_saw(wc->wr_id);
	search_saw((uint64_t)wc->status << 32 | (unsigned)wc->opcode);
	return is_recv(wc) ? check_recv(world, end, wc) : check_send(world, end, wc);
}

/*
 * When all is over
 */

static bool is_all(const unsigned char *bytes, uint32_t length, uint8_t value)
{
	return !length || (bytes[0] == value && !memcmp(bytes, bytes + 1, length - 1));
}

static bool is_spoiled(const unsigned char *bytes, uint32_t length)
{
	return is_all(bytes, length, SPOILED);
}

static int check_spoiled(struct world *world, const struct end *end,
			 const unsigned char *bytes, uint32_t length, const char *what)
{
	if (is_spoiled(bytes, length))
		return 0;
	return wrong(world, "%u.%u: %s was written after its completion", end->pair,
		     end->side, what);
}

static int check_buffers(struct world *world, const struct end *end)
{
	for (int i = 0; i < end->sends_done; i++)
		for (unsigned j = 0; j < end->send[i].pieces; j++)
			if (check_spoiled(world, end,
					  end->memory + end->send[i].piece[j],
					  end->send[i].piece_length[j], "a buffer"))
				return -1;
	for (int i = 0; i < end->recvs_done; i++)
		if (check_spoiled(world, end, end->recv[i].bytes, end->recv[i].room,
				  "a receive"))
			return -1;
	if (memcmp(end->memory + SOURCE, source_image(end), SOURCE_SIZE))
		return wrong(world, "%u.%u: the source has changed", end->pair,
			     end->side);
	if (!is_all(end->memory + CANARY, CANARY_SIZE, GUARD) ||
	    !is_all(end->memory + EDGE, EDGE_SIZE, GUARD))
		return wrong(world, "%u.%u: a bad WR had an effect", end->pair,
			     end->side);
	return 0;
}

/* One byte of the place that this WR was the first to write to. */
static bool byte_is_right(const struct end *end, int first, uint32_t at)
{
	uint8_t byte = end->peer->memory[end->send[first].remote + at];
	bool right = byte == EMPTY;

	for (int i = first; i >= 0; i = end->send[i].over) {
		const struct send *send = &end->send[i];

		if (at >= send->length)
			continue;
		if (send->done && !send->failed)
			right = false; /* whatever was there before */
		right |= byte == (send->consumed ? SPOILED : pattern(end, i, at));
	}
	return right;
}

static int check_writes(struct world *world, const struct end *end)
{
	bool later[SENDS_MAX] = { false };

	for (int i = 0; i < end->sends; i++) {
		const struct send *send = &end->send[i];

		if (send->over >= 0)
			later[send->over] = true;
		if (!is_write(send) || send->bad || later[i] ||
		    (send->consumed && send->over < 0 &&
		     is_spoiled(end->peer->memory + send->remote, send->length)))
			continue;
		for (uint32_t at = 0; at < send->length; at++)
			if (!byte_is_right(end, i, at))
				return wrong(world,
					     "%u.%u: byte %u of WRITE %d is wrong "
					     "in the end",
					     end->pair, end->side, at, i);
	}
	return 0;
}

/* The word is as the last atomic that succeeded left it, or as one after it did. */
static int check_word(struct world *world, const struct end *end)
{
	uint64_t word, due = end->word_before;
	bool right;

	memcpy(&word, end->peer->memory + WORD, sizeof(word));
	right = word == due;
	for (int i = end->round; i < end->sends; i++) {
		const struct send *send = &end->send[i];

		if (!is_atomic(send) || send->shared || send->bad)
			continue;
		if (send->done && !send->failed)
			right = false;
		right |= word == send->after;
	}
	return right ? 0
		     : wrong(world, "%u.%u: the word is 0x%llx", end->pair, end->side,
			     (unsigned long long)word);
}

static int check_arrivals(struct world *world, const struct end *end)
{
	int least = 0;

	for (int i = 0; i < end->consumers; i++)
		if (end->send[end->consumer[i]].done &&
		    !end->send[end->consumer[i]].failed)
			least = i + 1;
	if (end->arrived < least)
		return wrong(world,
			     "%u.%u: %d WRs took receives, only %d were reported",
			     end->pair, end->side, least, end->arrived);
	return 0;
}

int check_end(struct world *world, struct end *end)
{
	if (!is_dead(end) && check_buffers(world, end))
		return -1;
	if (!is_dead(end->peer) && check_arrivals(world, end))
		return -1;
	return check_writes(world, end) || check_word(world, end) ? -1 : 0;
}

int check_device(struct world *world, struct device *device)
{
	uint64_t word;

	memcpy(&word, device->memory, sizeof(word));
	if (word < (uint64_t)device->adds_done || word > (uint64_t)device->adds)
		return wrong(world, "%s: %llu additions of %d to %d", device->sim->name,
			     (unsigned long long)word, device->adds_done, device->adds);
	for (int i = 0; i < device->recvs; i++)
		if (device->recv[i].done &&
		    !is_spoiled(device->recv[i].bytes, RECV_ROOM))
			return wrong(world,
				     "%s: receive %d was written after its completion",
				     device->sim->name, i);
	return 0;
}
