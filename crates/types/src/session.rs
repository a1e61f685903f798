//! Where in an agent's conversation a request belongs.

/// A time or a span of it in a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

/// An agent's conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What an agent waited for before a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolId(pub u32);

/// Where in a conversation a request belongs, as far as the engine that gets it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The conversation.
    pub session: SessionId,
    /// The conversation that began this one, as an agent begins a sub-agent's.
    pub parent: Option<SessionId>,
    /// Counts from 0.
    pub turn: u32,
    /// How long the conversation paused before this request, from the end of its previous answer; 0 before the first.
    pub pause: Millis,
    /// The tool that the answer to this request calls, and whose result the next turn brings; none where the conversation
    /// ends or a person answers.
    pub calls: Option<ToolId>,
    /// Whether this is the conversation's last request.
    pub last: bool,
}
