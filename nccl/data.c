/* SPDX-License-Identifier: MIT */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "plugin.h"

static struct request *next_request(struct comm *comm)
{
	return &comm->request[comm->requests % NCCL_REQUESTS_MAX];
}

static void *start_request(struct comm *comm, size_t room)
{
	struct request *request = next_request(comm);

	request->state = REQUEST_POSTED;
	request->room = room;
	comm->requests++;
	return request;
}

/*
 * Sending
 */

int comm_post_grant_recv(struct comm *comm, uint32_t place)
{
	struct grant *grant = &comm->grants[place];
	const struct snt_sge sge = { comm->grant_mem, grant, sizeof(*grant) };
	const struct snt_recv_wr wr = { .wr_id = place, .sge = &sge, .sge_count = 1 };

	if (snt_qp_post_recv(comm->qp, &wr, 1) == 1)
		return NCCL_SUCCESS;
	return comm_fail(comm, NCCL_SYSTEM_ERROR, "no receive for a grant: %s",
			 snt_err_text());
}

static int read_grant(struct comm *comm, const struct grant *grant, size_t size,
		      struct snt_token *token_out)
{
	const size_t length = be64toh(grant->token_length);

	if (length > sizeof(grant->token) ||
	    snt_token_unpack(grant->token, length, token_out))
		return comm_fail(comm, NCCL_REMOTE_ERROR, "an invalid grant: %s",
				 snt_err_text());
	if (size > be64toh(grant->size))
		return comm_fail(
			comm, NCCL_INVALID_USAGE,
			"a message of %zu bytes is longer than the receive of "
			"%llu bytes: the ranks disagree about a collective, or "
			"have different settings of NCCL",
			size, (unsigned long long)be64toh(grant->size));
	return NCCL_SUCCESS;
}

static int post_message(struct comm *comm, void *data, size_t size,
			const struct memory *memory, const struct grant *grant,
			const struct snt_token *token)
{
	const struct snt_sge sge = { memory ? memory->mem : comm->grant_mem, data,
				     size };
	const struct snt_send_wr wr = {
		.wr_id = comm->requests % NCCL_REQUESTS_MAX,
		.opcode = SNT_OP_WRITE_IMM,
		.flags = SNT_SEND_SIGNALED,
		.sge = &sge,
		.sge_count = size ? 1 : 0,
		.remote = token,
		.remote_addr = be64toh(grant->addr),
	};

	if (snt_qp_post_send(comm->qp, &wr, 1) == 1)
		return NCCL_SUCCESS;
	return comm_fail(comm, NCCL_SYSTEM_ERROR, "a message of %zu bytes: %s", size,
			 snt_err_text());
}

int net_isend(void *handle, void *data, size_t size, void *memory, void **request_out)
{
	struct comm *comm = handle;
	const uint32_t place = comm->requests % NCCL_REQUESTS_MAX;
	struct snt_token token;
	int ret;

	*request_out = NULL;
	if (next_request(comm)->state != REQUEST_FREE)
		return NCCL_SUCCESS;
	if (comm->grants_done == comm->requests)
		comm_poll(comm);
	if (comm->failed)
		return comm->failed;
	if (comm->grants_done == comm->requests) {
		comm_idle(comm);
		return comm->failed;
	}
	ret = read_grant(comm, &comm->grants[place], size, &token);
	if (!ret)
		ret = post_message(comm, data, size, memory, &comm->grants[place],
				   &token);
	if (!ret)
		ret = comm_post_grant_recv(comm, place);
	if (!ret)
		*request_out = start_request(comm, 0);
	return ret;
}

/*
 * Receiving
 */

/* The packed token of the whole memory, since an empty range has none. */
static void write_grant(struct grant *grant, void *data, size_t size,
			const struct memory *memory)
{
	grant->addr = htobe64((uintptr_t)data);
	grant->size = htobe64(size);
	grant->token_length = htobe64(memory->token_length);
	memcpy(grant->token, memory->token, memory->token_length);
}

static int post_grant(struct comm *comm, uint32_t place, size_t length)
{
	const struct snt_recv_wr recv = { .wr_id = place };
	const struct snt_sge sge = { comm->grant_mem, &comm->grants[place], length };
	const struct snt_send_wr send = {
		.wr_id = place,
		.opcode = SNT_OP_SEND,
		.flags = SNT_SEND_SIGNALED,
		.sge = &sge,
		.sge_count = 1,
	};

	if (snt_qp_post_recv(comm->qp, &recv, 1) == 1 &&
	    snt_qp_post_send(comm->qp, &send, 1) == 1)
		return NCCL_SUCCESS;
	return comm_fail(comm, NCCL_SYSTEM_ERROR, "a receive: %s", snt_err_text());
}

int net_irecv(void *handle, void *data, size_t size, void *memory, void **request_out)
{
	struct comm *comm = handle;
	const uint32_t place = comm->requests % NCCL_REQUESTS_MAX;
	struct grant *grant = &comm->grants[place];
	int ret;

	*request_out = NULL;
	if (next_request(comm)->state != REQUEST_FREE)
		return NCCL_SUCCESS;
	if (!memory)
		return comm_fail(comm, NCCL_INVALID_USAGE,
				 "a receive into memory that is not registered");
	/* The device may still be reading the grant that was in this place before. */
	if (comm->requests - comm->grants_done == NCCL_REQUESTS_MAX)
		comm_poll(comm);
	if (comm->failed)
		return comm->failed;
	if (comm->requests - comm->grants_done == NCCL_REQUESTS_MAX)
		return NCCL_SUCCESS;
	write_grant(grant, data, size, memory);
	ret = post_grant(comm, place,
			 offsetof(struct grant, token) +
				 ((struct memory *)memory)->token_length);
	if (!ret)
		*request_out = start_request(comm, size);
	return ret;
}
