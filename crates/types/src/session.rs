//! A request's place in an agent's conversation.

/// A time or a span of it in a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// An agent's conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The tool that an agent waited for before a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolId(pub u32);

/// A request's place in its conversation, as far as the engine that serves the request knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The conversation.
    pub session: SessionId,
    /// The conversation that started this one, where one agent starts another.
    pub parent: Option<SessionId>,
    /// The request's number in the conversation, from 0. To policies, uses of one session and turn are one request.
    pub turn: u32,
    /// How long the conversation paused before this request, from the end of its previous answer; 0 before the first.
    pub pause: Millis,
    /// The tool that this request's answer calls; the next turn brings the tool's result. None where the conversation
    /// ends or a person answers.
    pub calls: Option<ToolId>,
    /// Whether this is the conversation's last request.
    pub last: bool,
}

/// What is known of a use of a block: the request, and where in the request's prefix the block stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedFor {
    /// Blocks before this one in its prefix; the block is useless without them.
    pub depth: u32,
    /// The request.
    pub origin: Origin,
}
