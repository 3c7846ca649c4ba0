/* SPDX-License-Identifier: MIT */
/* Listening by connection managers: which requests are refused, and which of the listeners
 * that share a port gets the others. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "conn/carrier_cm.h"
#include "conn/cm_loop.h"
#include "conn/feed.h"
#include "conn/message.h"
#include "conn/plain.h"
#include "util/err.h"

/* The part of an error text that a list of addresses may take. */
#define PRESENT_TEXT 256

struct acceptor {
	struct snt__acceptor acceptor;
	unsigned count;
	struct snt__cm_id *id[SNT__CM_KINDS_MAX];
};

void snt__cm_refuse(struct snt__cm_id *id, enum snt__end_code code, const char *text)
{
	uint8_t data[SNT__LAST_WORD_MAX];

	id->cm->table->reject(id, data, snt__last_word(code, text, data));
	id->cm->table->destroy(id);
}

static void take_request(struct snt_listener *listener, struct snt__cm_manager *manager,
			 const struct snt__cm_event *event)
{
	if (snt__listener_is_plain(listener))
		snt__plain_take_request(listener, manager, event);
	else
		snt__cm_accept(listener, manager, event);
}

/* A request on its way to a listener in another loop. */
struct passed_request {
	struct snt__arrival arrival;
	struct snt__cm_manager *manager; /* the other loop's */
	struct snt__cm_event event;
};

static struct snt__cm_manager *find_manager(const struct snt__conn_loop *conn_loop,
					    const struct snt__cm_table *table)
{
	for (unsigned i = 0; i < conn_loop->cm->count; i++)
		if (conn_loop->cm->manager[i].cm->table == table)
			return &conn_loop->cm->manager[i];
	return NULL;
}

static int move_request_to_loop(struct snt__arrival *arrival,
				const struct snt__conn_loop *to)
{
	struct passed_request *passed =
		snt__container(arrival, struct passed_request, arrival);
	struct snt__cm_id *id = passed->event.id;

	passed->manager = find_manager(to, id->cm->table);
	id->user = NULL; /* of no loop, until the other thread has it */
	return passed->manager ? id->cm->table->move(id, passed->manager->cm) : -ENOENT;
}

static void take_passed(struct snt__arrival *arrival, struct snt__conn_loop *conn_loop,
			struct snt_listener *listener)
{
	struct passed_request *passed =
		snt__container(arrival, struct passed_request, arrival);

	(void)conn_loop;
	if (listener)
		take_request(listener, passed->manager, &passed->event);
	else if (snt__cm_is_from_sennit(&passed->event))
		snt__cm_refuse(passed->event.id, SNT__END_REFUSED,
			       "the listener is closed");
	else
		snt__plain_turn_away(passed->event.id);
	free(passed);
}

/* Returns whether the request goes to another listener. */
static bool pass_on_request(struct snt__member *member,
			    const struct snt__cm_event *event)
{
	struct passed_request *passed;

	if (!snt__feed_is_shared(member))
		return false;
	passed = malloc(sizeof(*passed));
	if (!passed)
		return false;
	*passed = (struct passed_request){ .arrival = { .move = move_request_to_loop,
							.take = take_passed },
					   .event = *event };
	if (snt__feed_give(member, &passed->arrival))
		return true;
	free(passed);
	return false;
}

void snt__cm_requested(struct snt__cm_manager *manager,
		       const struct snt__cm_event *event)
{
	struct acceptor *acceptor = event->listener->user;
	struct snt_listener *listener = acceptor->acceptor.listener;
	bool plain = snt__listener_is_plain(listener);

	if (snt__cm_is_from_sennit(event) == plain) {
		snt__cm_refuse(event->id, SNT__END_PROTOCOL,
			       plain ? "this listener serves plain connections only; "
				       "use SNT_CARRIER_PLAIN"
				     : "this listener serves sennit's connections "
				       "only; use SNT_CARRIER_CM");
		return;
	}
	if (!pass_on_request(snt__listener_member(listener), event))
		take_request(listener, manager, event);
}

static void cm_acceptor_close(struct snt__acceptor *base)
{
	struct acceptor *acceptor = snt__container(base, struct acceptor, acceptor);

	while (acceptor->count) {
		struct snt__cm_id *id = acceptor->id[--acceptor->count];

		id->cm->table->destroy(id);
	}
	free(acceptor);
}

static const struct snt__acceptor_table acceptor_table = { .close = cm_acceptor_close,
							   .by_cm = true };

/* The same port at all managers that have the address. */
static int listen_all(struct acceptor *acceptor, const struct sockaddr *address,
		      unsigned backlog)
{
	struct snt__conn_loop *conn_loop = acceptor->acceptor.conn_loop;
	struct sockaddr_storage *bound = &acceptor->acceptor.bound, at, peer;
	int ret = -EADDRNOTAVAIL;

	memcpy(bound, address, snt__address_size(address));
	for (unsigned i = 0; i < conn_loop->cm->count; i++) {
		struct snt__cm *cm = conn_loop->cm->manager[i].cm;
		struct snt__cm_id **id = &acceptor->id[acceptor->count];

		ret = cm->table->listen(cm, (struct sockaddr *)bound, backlog, id);
		if (ret == -EADDRNOTAVAIL)
			continue;
		if (ret)
			return ret;
		(*id)->user = acceptor;
		acceptor->count++;
		cm->table->addresses(*id, &at, &peer);
		snt__address_set_port(bound, snt__address_port((struct sockaddr *)&at));
	}
	return acceptor->count ? 0 : ret;
}

static int explain_listen(const struct snt__conn_loop *conn_loop,
			  const struct sockaddr *address, int error)
{
	char text[SNT__ADDRESS_TEXT], present[PRESENT_TEXT];

	snt__address_text(address, text);
	if (error == -EADDRNOTAVAIL)
		return snt__fail(EADDRNOTAVAIL,
				 "no device has the address %s to listen on; present: "
				 "%s",
				 text,
				 snt__cm_loop_addresses(conn_loop, present,
							sizeof(present)));
	if (error == -EADDRINUSE)
		return snt__fail(EADDRINUSE,
				 "%s is in use; choose another port, or 0 for any free "
				 "one",
				 text);
	return snt__fail(-error, "cannot listen on %s: %s", text, snt_err_text());
}

int snt__cm_listen(struct snt__conn_loop *conn_loop, const struct sockaddr *address,
		   unsigned backlog, struct snt_listener *listener,
		   struct snt__acceptor **acceptor_out)
{
	struct acceptor *acceptor;
	int ret = snt__cm_loop_open(conn_loop);

	if (ret)
		return ret;
	acceptor = calloc(1, sizeof(*acceptor));
	if (!acceptor)
		return snt__fail(ENOMEM, "no memory for a listener");
	acceptor->acceptor = (struct snt__acceptor){ .table = &acceptor_table,
						     .conn_loop = conn_loop,
						     .listener = listener };
	ret = listen_all(acceptor, address, backlog);
	if (ret) {
		ret = explain_listen(conn_loop, address, ret);
		cm_acceptor_close(&acceptor->acceptor);
		return ret;
	}
	*acceptor_out = &acceptor->acceptor;
	return 0;
}
