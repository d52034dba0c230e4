// SPDX-License-Identifier: BSD-3-Clause
// soft/connected/owner: the events that a queue pair tells the connection manager.
#pragma once

namespace soft {

// The connection manager's id, which is told the events of a connection. The caller holds the group's lock.
class ConnectionOwner {
public:
    virtual void connection_established() = 0;
    virtual void connection_ended() = 0;

protected:
    ~ConnectionOwner() = default;
};

}  // namespace soft
